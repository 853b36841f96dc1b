"""Which city lies in which country, so that "lives in Japan" and "lives in Osaka" agree.

Not an atlas: what is not here is unknown, and of two places of which one is unknown nothing is
concluded. Names are folded; spaces in a name are written as underscores.
"""

from __future__ import annotations

import re
from typing import Final

_LANDS: Final = """
argentina argentinien アルゼンチン: buenos_aires córdoba rosario mendoza
australia australien オーストラリア: sydney melbourne brisbane perth adelaide canberra シドニー
 メルボルン
austria österreich オーストリア: vienna wien graz linz salzburg innsbruck ウィーン
belgium belgien ベルギー: brussels brüssel antwerp antwerpen ghent gent bruges brügge liège
 leuven
brazil brasilien ブラジル: são_paulo rio_de_janeiro brasília salvador recife サンパウロ
bulgaria bulgarien: sofia plovdiv varna
canada kanada カナダ: toronto vancouver montreal montréal ottawa calgary edmonton winnipeg
 トロント バンクーバー
chile チリ: santiago valparaíso
china 中国: beijing peking shanghai guangzhou shenzhen chengdu wuhan 北京 上海
colombia kolumbien: bogotá medellín cali
croatia kroatien: zagreb split rijeka
czechia tschechien czech_republic チェコ: prague prag brno brünn ostrava プラハ
denmark dänemark デンマーク: copenhagen kopenhagen aarhus odense コペンハーゲン
egypt ägypten エジプト: cairo kairo alexandria カイロ
estonia estland: tallinn tartu
finland finnland フィンランド: helsinki tampere turku espoo ヘルシンキ
france frankreich フランス: paris lyon marseille toulouse nice nizza nantes bordeaux lille
 strasbourg straßburg montpellier grenoble rennes パリ
germany deutschland ドイツ: berlin hamburg munich münchen cologne köln frankfurt stuttgart
 düsseldorf dortmund essen leipzig bremen dresden hanover hannover nuremberg nürnberg bonn
 freiburg mannheim karlsruhe münster augsburg kiel mainz heidelberg potsdam jena erfurt rostock
 kassel aachen ベルリン ミュンヘン ハンブルク フランクフルト
ghana ガーナ: accra kumasi
greece griechenland ギリシャ: athens athen thessaloniki アテネ
hungary ungarn ハンガリー: budapest debrecen szeged ブダペスト
iceland island アイスランド: reykjavik
india indien インド: mumbai delhi new_delhi bangalore bengaluru chennai kolkata hyderabad pune
 デリー ムンバイ
indonesia indonesien インドネシア: jakarta bandung surabaya ジャカルタ
ireland irland アイルランド: dublin cork galway limerick ダブリン
israel イスラエル: tel_aviv jerusalem haifa
italy italien イタリア: rome rom milan mailand naples neapel turin florence florenz venice
 venedig bologna genoa genua palermo ローマ ミラノ
japan 日本: tokyo tokio osaka kyoto sapporo nagoya fukuoka kobe yokohama sendai hiroshima nara
 kanazawa 東京 大阪 京都 札幌 名古屋 福岡 神戸 横浜 仙台 広島 奈良 金沢 沖縄 北海道 千葉 埼玉
 静岡 新潟 長野 岡山 熊本 鹿児島 川崎
kenya kenia ケニア: nairobi mombasa ナイロビ
latvia lettland: riga
lithuania litauen: vilnius kaunas
mexico mexiko メキシコ: mexico_city guadalajara monterrey puebla メキシコシティ
morocco marokko モロッコ: casablanca rabat marrakesh marrakech
netherlands the_netherlands niederlande オランダ: amsterdam rotterdam the_hague den_haag utrecht
 eindhoven groningen leiden アムステルダム
new_zealand neuseeland ニュージーランド: auckland wellington christchurch オークランド
nigeria ナイジェリア: lagos abuja
norway norwegen ノルウェー: oslo bergen trondheim stavanger オスロ
peru ペルー: lima cusco
philippines philippinen フィリピン: manila cebu マニラ
poland polen ポーランド: warsaw warschau kraków krakow krakau gdańsk gdansk danzig wrocław
 wroclaw breslau poznań poznan ワルシャワ
portugal ポルトガル: lisbon lissabon lisboa porto coimbra braga faro リスボン ポルト
romania rumänien: bucharest bukarest cluj
russia russland ロシア: moscow moskau saint_petersburg モスクワ
serbia serbien: belgrade belgrad
singapore singapur シンガポール:
slovakia slowakei: bratislava
slovenia slowenien: ljubljana
south_africa südafrika 南アフリカ: cape_town kapstadt johannesburg durban pretoria
south_korea korea südkorea 韓国: seoul busan incheon ソウル 釜山
spain spanien スペイン: madrid barcelona valencia seville sevilla bilbao málaga malaga zaragoza
 granada マドリード バルセロナ
sweden schweden スウェーデン: stockholm gothenburg göteborg malmö uppsala lund ストックホルム
switzerland schweiz スイス: zurich zürich geneva genf basel bern lausanne luzern lucerne
 チューリッヒ ジュネーブ
taiwan 台湾: taipei kaohsiung 台北
thailand タイ: bangkok chiang_mai バンコク
turkey türkei türkiye トルコ: istanbul ankara izmir イスタンブール
ukraine ウクライナ: kyiv kiev kiew lviv lwiw odesa odessa キーウ
united_kingdom uk england scotland wales großbritannien イギリス 英国: london manchester
 birmingham leeds liverpool bristol edinburgh glasgow cardiff belfast oxford cambridge sheffield
 brighton york bath hull nottingham leicester newcastle southampton plymouth norwich exeter
 aberdeen dundee inverness swansea bradford coventry ロンドン エディンバラ
united_states usa us america amerika アメリカ 米国: new_york new_york_city los_angeles chicago
 houston philadelphia phoenix san_francisco seattle boston denver austin portland miami atlanta
 detroit dallas san_diego washington minneapolis pittsburgh new_orleans nashville sacramento
 las_vegas charlotte baltimore tampa orlando st_louis cleveland milwaukee salt_lake_city
 san_antonio san_jose fresno oakland tucson albuquerque honolulu omaha memphis buffalo ニューヨーク
 ロサンゼルス シカゴ ボストン シアトル サンフランシスコ
vietnam ベトナム: hanoi ho_chi_minh_city saigon ハノイ ホーチミン
"""

_ALIASES: Final = """
lisbon lissabon lisboa リスボン|prague prag プラハ|vienna wien ウィーン
munich münchen ミュンヘン|cologne köln|brussels brüssel|ghent gent|bruges brügge
antwerp antwerpen|rome rom ローマ|milan mailand ミラノ|naples neapel|florence florenz
venice venedig|genoa genua|nuremberg nürnberg|hanover hannover|frankfurt フランクフルト
berlin ベルリン|hamburg ハンブルク|zurich zürich チューリッヒ|geneva genf ジュネーブ
lucerne luzern|copenhagen kopenhagen コペンハーゲン|athens athen アテネ
warsaw warschau ワルシャワ|kraków krakow krakau|gdańsk gdansk danzig|wrocław wroclaw breslau
poznań poznan|kyiv kiev kiew キーウ|lviv lwiw|odesa odessa|moscow moskau モスクワ
cairo kairo カイロ|beijing peking 北京|shanghai 上海|tokyo tokio 東京|osaka 大阪|kyoto 京都
sapporo 札幌|nagoya 名古屋|fukuoka 福岡|kobe 神戸|yokohama 横浜|sendai 仙台|hiroshima 広島
nara 奈良|kanazawa 金沢|seoul ソウル|busan 釜山|taipei 台北|bangkok バンコク|hanoi ハノイ
singapore singapur シンガポール|the_hague den_haag|nice nizza|strasbourg straßburg
seville sevilla|málaga malaga|madrid マドリード|barcelona バルセロナ|porto ポルト|paris パリ
london ロンドン|new_york new_york_city ニューヨーク|gothenburg göteborg|bangalore bengaluru
delhi new_delhi デリー|mumbai ムンバイ|cape_town kapstadt|montreal montréal|toronto トロント
vancouver バンクーバー|marrakesh marrakech|bucharest bukarest|belgrade belgrad|brno brünn
boston ボストン|chicago シカゴ|seattle シアトル|sydney シドニー|melbourne メルボルン
auckland オークランド|helsinki ヘルシンキ|oslo オスロ|stockholm ストックホルム
amsterdam アムステルダム|dublin ダブリン|istanbul イスタンブール|budapest ブダペスト
nairobi ナイロビ|edinburgh エディンバラ|los_angeles ロサンゼルス|san_francisco サンフランシスコ
jakarta ジャカルタ|manila マニラ|ho_chi_minh_city saigon ホーチミン|mexico_city メキシコシティ
são_paulo サンパウロ
"""


_ELSEWHERE_TOO: Final = """
argentina: santiago
canada: london hamilton kingston
mexico: córdoba guadalajara valencia
spain: córdoba cordoba león leon santiago granada toledo mérida
united_kingdom: perth wellington boston durham
united_states: cambridge birmingham manchester oxford bristol york london paris rome athens
 melbourne naples florence venice dublin berlin moscow toledo cleveland richmond lima geneva
 lebanon st_petersburg vienna valencia portland edinburgh glasgow aberdeen warsaw milan odessa
chile: valencia los_angeles
nicaragua: granada león leon
philippines: valencia toledo santiago
"""
"""Cities of which another country has one of the same name."""


def _lands() -> tuple[dict[str, str], dict[str, frozenset[str]]]:
    """A country's names to its first one, a city's to the countries that have one."""
    names: dict[str, str] = {}
    cities: dict[str, frozenset[str]] = {}
    for listed in (_LANDS, _ELSEWHERE_TOO):
        for line in re.split(r"\n(?! )", listed.strip()):
            land, _, towns = line.partition(":")
            first = _spaced(land.split()[0])
            names |= {_spaced(name): first for name in land.split()}
            for town in map(_spaced, towns.split()):
                cities[town] = cities.get(town, frozenset()) | {first}
    return names, cities


def _spaced(name: str) -> str:
    return name.replace("_", " ").casefold()


_COUNTRIES, _CITIES = _lands()
_SAME_CITY: Final = {
    _spaced(name): _spaced(group.split()[0])
    for line in _ALIASES.strip().splitlines()
    for group in line.split("|")
    for name in group.split()
}


def apart(one: str, other: str) -> bool:
    """Whether a person who lives in `one` cannot live in `other` (folded names, with spaces): two
    cities, two countries, or a city and a country in which none of its name lies.

    False where either is unknown, and for a place that has the other's name in its own.
    """
    if f" {one} " in f" {other} " or f" {other} " in f" {one} ":
        return False
    lands, other_lands = _lands_of(one), _lands_of(other)
    if not lands or not other_lands:
        return False
    if one in _COUNTRIES or other in _COUNTRIES:
        return lands.isdisjoint(other_lands)
    return _SAME_CITY.get(one, one) != _SAME_CITY.get(other, other)


def is_known(name: str) -> bool:
    """Whether the place of that folded name is in the list."""
    return bool(_lands_of(name))


def _lands_of(name: str) -> frozenset[str]:
    return frozenset(filter(None, [_COUNTRIES.get(name)])) | _CITIES.get(name, frozenset())
