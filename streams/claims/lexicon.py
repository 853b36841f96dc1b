"""Nouns that say which slot a value fills. Plain data; two words are joined by "_"."""

from __future__ import annotations

import re
from typing import Final

from palimpsest.streams.text.dates import MONTHS

LANGUAGES: Final = frozenset(
    """english german french spanish italian portuguese dutch russian japanese chinese mandarin
    cantonese korean arabic hebrew hindi urdu bengali punjabi tamil turkish polish czech greek
    swedish norwegian danish finnish hungarian romanian ukrainian vietnamese thai indonesian malay
    tagalog swahili welsh irish gaelic catalan basque latin esperanto farsi persian serbian
    croatian bulgarian icelandic afrikaans zulu nepali gujarati marathi telugu mongolian
    sign_language asl sinhala khmer lao slovak slovenian estonian latvian lithuanian albanian
    armenian georgian""".split()
)
ILLNESSES: Final = frozenset(
    """asthma diabetes cancer migraines migraine arthritis eczema psoriasis anxiety depression
    insomnia adhd autism epilepsy hypertension anemia anaemia lupus ibs pcos ocd ptsd copd
    endometriosis fibromyalgia hypothyroidism hyperthyroidism scoliosis tinnitus vertigo dyslexia
    leukemia dementia alzheimer's parkinson's gout gerd osteoporosis glaucoma narcolepsy sciatica
    hemophilia angina schizophrenia anorexia bulimia claustrophobia arachnophobia asperger's
    celiac coeliac crohn's rosacea vitiligo aphantasia synesthesia concussion pneumonia
    tuberculosis malaria hiv gastritis tendonitis allergies allergy add pacemaker""".split()
)
JOBS: Final = frozenset(
    """nurse doctor guard teacher engineer developer programmer designer manager lawyer attorney
    accountant architect chef cook baker waiter waitress barista bartender cashier driver pilot
    paramedic firefighter policeman officer detective soldier veteran marine sailor captain actor
    actress singer musician pianist guitarist drummer dancer painter artist writer author
    journalist editor photographer filmmaker director producer consultant analyst scientist
    researcher professor lecturer tutor librarian student intern apprentice plumber electrician
    carpenter mechanic farmer gardener builder contractor surgeon dentist veterinarian vet
    pharmacist therapist psychologist psychiatrist counselor counsellor coach trainer instructor
    salesman salesperson saleswoman realtor banker broker trader economist statistician
    mathematician physicist chemist biologist geologist translator interpreter secretary
    receptionist assistant administrator clerk freelancer entrepreneur founder ceo cto cfo
    landlord stylist hairdresser barber beautician tailor florist jeweler potter sculptor
    illustrator animator copywriter marketer recruiter nanny babysitter caregiver midwife doula
    priest pastor minister monk nun rabbi imam judge paralegal politician diplomat ambassador
    activist social_worker volunteer technician operator supervisor foreman welder miner fisherman
    butcher sommelier brewer dj comedian model athlete footballer swimmer runner cyclist gymnast
    boxer wrestler referee lifeguard guide pediatrician cardiologist neurologist radiologist
    optometrist physiotherapist nutritionist dietitian blogger vlogger youtuber streamer
    influencer podcaster sophomore freshman senior junior graduate undergraduate postdoc hygienist
    housewife homemaker janitor cleaner courier mailman postman superintendent principal dean
    curator archivist historian philosopher linguist anthropologist sociologist archaeologist
    astronomer astronaut data_scientist freelancer screenwriter playwright novelist poet composer
    conductor violinist cellist bassist rapper conservationist environmentalist ecologist
    zookeeper ranger forester agronomist surveyor inspector auditor planner strategist executive
    representative agent associate specialist coordinator secretary treasurer president chairman
    treasurer advisor adviser actuary""".split()
)
OWNED: Final = frozenset(
    """car bike bicycle motorcycle motorbike scooter truck van suv boat yacht kayak canoe rv
    camper house apartment flat condo cottage cabin farm garden greenhouse land piano keyboard
    guitar violin ukulele drums saxophone flute cello banjo trumpet harmonica telescope microscope
    camera drone laptop computer pc macbook ipad tablet phone iphone smartphone smartwatch watch
    console playstation xbox switch nintendo kindle tv television treadmill peloton rower tent
    surfboard skateboard snowboard skis sewing_machine printer oven grill smoker fryer mixer
    espresso_machine coffee_machine coffee_maker aquarium tank terrarium pool hot_tub sauna
    tractor lens vinyl records collection amp monitor router hard_drive fridge membership
    subscription business company franchise shop store restaurant bakery cafe café studio blog
    podcast channel website license licence passport tattoo tattoos ring necklace couch sofa bed
    mattress desk vacuum air_fryer instant_pot blender headphones earbuds speaker turntable
    motorhome sedan jeep tesla truck trailer rental_property vineyard orchard chickens beehive
    coop typewriter synthesizer""".split()
)
KEPT: Final = frozenset(
    """car bike bicycle motorcycle motorbike scooter truck boat yacht kayak canoe rv camper
    motorhome garden greenhouse piano guitar violin ukulele banjo telescope farm aquarium podcast
    blog business restaurant bakery kindle""".split()
)
"""What says something of its owner by its name alone, where a phone or a desk says nothing."""
APPOINTMENTS: Final = frozenset(
    """appointment funeral surgery operation exam exams interview wedding concert flight test trip
    conference match race recital graduation tournament competition deadline presentation party
    reunion marathon workshop checkup check-up""".split()
)
GAMES: Final = frozenset(
    """piano keyboard keyboards guitar violin viola cello bass drums drum flute clarinet saxophone
    sax trumpet trombone ukulele banjo harp harmonica organ accordion mandolin oboe tennis soccer
    football basketball baseball volleyball hockey golf cricket rugby badminton squash softball
    lacrosse chess poker bridge pool darts pickleball padel table_tennis ping_pong frisbee
    water_polo handball paintball bowling dodgeball instrument go mahjong scrabble""".split()
)
DISCIPLINES: Final = frozenset(
    """yoga pilates karate judo taekwondo jiu-jitsu jujitsu boxing kickboxing crossfit gymnastics
    meditation ballet pottery ceramics calligraphy photography woodworking carpentry gardening
    embroidery crochet origami archery fencing aikido zumba tai_chi capoeira aerobics parkour
    martial_arts improv stand-up theater theatre taekwondo salsa tango weightlifting powerlifting
    triathlons marathons cosplay bonsai scuba skateboarding surfing snowboarding skiing climbing
    """.split()
)
LESSONS: Final = frozenset("class classes lesson lessons course courses workshop workshops".split())
TRIPS: Final = frozenset(
    "trip vacation holiday cruise tour getaway retreat conference honeymoon hike safari".split()
)
OCCASIONS: Final = frozenset(
    """surgery operation appointment picnic party wedding interview accident trip exam game
    concert show reunion barbecue bbq dinner gig performance workshop class meeting checkup
    check-up baby miscarriage stroke seizure concussion recital ceremony procedure fight breakup
    date session consultation follow-up gathering get-together cookout potluck fundraiser sale
    vacation""".split()
)
COMPLAINTS: Final = frozenset(
    """cough congestion pain pains heartburn headaches headache nausea fatigue insomnia anxiety
    depression reflux injury surgery stroke burnout addiction allergies migraines symptoms
    infection cramps rash acne grief loneliness stress cold flu covid concussion illness""".split()
)
PROJECTS: Final = frozenset(
    """novel book thesis dissertation album app game website startup business memoir screenplay
    painting series sculpture portfolio podcast documentary film paper blog quilt mural garden
    renovation robot phd degree certification kit model comic song songs collection articles
    stories poems poetry columns""".split()
)
NOT_COUNTED: Final = frozenset(
    """days weeks months years hours minutes questions options ideas things meetings classes exams
    games matches times more left chances choices reasons suggestions people guys tests
    assignments episodes chapters pages errands shifts tickets points items rows columns dollars
    miles friends places tabs calls interviews deadlines bucks cents lives sides problems issues
    concerns goals drinks beers types kinds tasks projects papers hrs mins""".split()
)
AWARDS: Final = frozenset(
    """tournament championship competition contest award prize medal trophy scholarship lottery
    election race game match book novel article paper poem album song grant""".split()
)
FIELDS: Final = frozenset(
    """tech technology healthcare finance marketing sales retail education hospitality
    construction insurance banking it hr consulting advertising journalism publishing film
    television media research academia law medicine nursing accounting engineering manufacturing
    agriculture logistics bakery restaurant hospital clinic office factory warehouse library
    school lab kitchen bar cafe café shop store bank law_firm startup start-up gym hotel salon
    daycare museum nonprofit non-profit company firm business real_estate cybersecurity biotech
    government politics fashion theater theatre food_industry industry sector department""".split()
)
EMPLOYERS: Final = (
    FIELDS
    | JOBS
    | frozenset(
        """academy agency airline airport army association atelier authority bistro bookshop
        bookstore branch brewery broker butchery cafeteria call_center call_centre campus canteen
        casino center centre chain charity church cinema city club college consulate consultancy
        cooperative co-op corporation council county court courthouse data_center data_centre
        dealership deli department diner docks embassy farm fire_brigade foundation front_desk
        gallery garage grocery group harbor harbour headquarters help_desk hospice hostel
        information_desk inn institute institution insurer kindergarten label laboratory laundry
        magazine mall manufacturer market mill mine ministry mosque municipality navy newspaper ngo
        nursery care_home funeral_home nursing_home observatory orchard orchestra park parliament
        pharmacy pizzeria plant police port post_office practice preschool press prison project
        provider pub publisher quarry radio railway railways ranch reception refinery registry
        retailer sanctuary service services shelter shipyard site society spa stables stadium state
        station studio subsidiary supermarket supplier synagogue tavern team temple terminal
        theater theatre trust union university utility vineyard winery workshop yard zoo
        baker's butcher's chemist's dentist's doctor's florist's grocer's hairdresser's optician's
        tailor's vet's
        accenture airbnb aldi alibaba allianz amazon amd apple bmw boeing bosch cisco costco dell
        deloitte disney ericsson facebook google hsbc huawei ibm ikea intel kpmg lego lidl
        mcdonald's mcdonalds meta microsoft netflix nike nokia nvidia oracle paypal pfizer philips
        pwc salesforce samsung sap shell siemens sony spotify starbucks stripe target tesco tesla
        tiktok toyota twitter uber verizon vodafone volkswagen volvo walmart""".split()
    )
)
"""Who employs and where, with the names of firms that many write without a capital."""
MANNERS: Final = frozenset(
    """pace speed rate tempo rhythm level height heights altitude night nights day days noon
    midnight dawn dusk sunrise sunset weekend weekends christmas easter lunchtime hour hours
    efficiency capacity notice distance temperature temperatures intensity length home work job
    desk best leisure""".split()
)
"""When, how and how fast somebody works, also where it is written like a name."""
HABIT_PLACES: Final = frozenset(
    """gym church mosque temple synagogue therapy yoga pool library dialysis physiotherapy class
    classes park runs run walk walks swim meetings pilates market spa beach club work""".split()
)
PRAISE: Final = frozenset(
    """great good bad terrible amazing talented truly big huge excellent decent favorite favourite
    better best poor horrible fantastic wonderful pretty proud natural born total""".split()
)
ADJECTIVE: Final = re.compile(
    r"\w+(?:ish|ese|ian|ean|can|man)|french|dutch|swiss|greek|czech|thai|catholic|muslim|hindu"
    r"|buddhist|protestant"
)
"""Folded words that are written like a name and are none."""
FAVOURITES: Final = tuple(
    frozenset(re.split(r", *\n? *", words.strip()))
    for words in (
        "red, orange, yellow, green, blue, purple, pink, brown, black, white, grey, gold, silver",
        "spring, summer, autumn, winter",
        "monday, tuesday, wednesday, thursday, friday, saturday, sunday",
        ", ".join(MONTHS),
        "one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen",
        """pizza, sushi, ramen, tacos, lasagna, curry, pho, burgers, risotto, paella, falafel,
        dumplings, pancakes, waffles, fish and chips, steak, chili, mac and cheese, pad thai,
        spaghetti, gnocchi, goulash, couscous, hummus, bibimbap, tempura, burritos, kebab""",
        "tea, coffee, water, wine, beer, lemonade, orange juice, whisky, gin and tonic, cola",
        """apples, bananas, mangoes, strawberries, cherries, grapes, peaches, pears, plums, kiwis,
        pineapple, watermelon, blueberries, apple, banana, grape, pear, plum, kiwi""",
        """cats, dogs, horses, elephants, giraffes, lions, tigers, wolves, foxes, owls, pandas,
        dolphins, whales, penguins, otters, koalas, sloths, cat, dog, horse, elephant, giraffe,
        lion, tiger, owl, panda, dolphin, whale, penguin, otter, koala, sloth""",
        """football, tennis, basketball, swimming, rugby, cricket, golf, hockey, volleyball,
        badminton, baseball, boxing, climbing, surfing, skiing, rowing, judo, handball""",
        "roses, tulips, lilies, daisies, orchids, sunflowers, peonies, dahlias, irises",
        "maths, physics, chemistry, biology, history, geography, art, music, latin, economics",
        "vanilla, chocolate, strawberry, pistachio, hazelnut, lemon, caramel, stracciatella",
    )
)
"""Things of which none is a kind of another. An adjective would only say something of the favourite
("is delicious"), and no pattern tells it from a noun."""
