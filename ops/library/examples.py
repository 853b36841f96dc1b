"""An example of each method that is made from an operation: the end of its docstring. The tests run
them one after another, in the order of the methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_WRITTEN: Final = """
## recall
>>> found = await memory.recall("where does Ana live?", limit=3)
>>> found.results[0].content
'Ana moved to Lisbon in March 2025.'
## search
>>> [each.content for each in (await memory.search("bakery", types=["fact"])).results]
['Ben works at a bakery in Ghent.']
## context
>>> block = await memory.context("where does Ben work?")
>>> "Ben works at a bakery in Ghent." in block.text
True
>>> explained = await memory.context("where does Ben work?", explain=True)
>>> "\\n".join(each.text for each in explained.lines) == explained.text
True
## get
>>> (await memory.get((await memory.list(types=["fact"])).memories[0].id)).version
1
## locate
>>> (await memory.locate((await memory.list()).memories[0].id)).scope
'ana'
## list
>>> sorted(each.content for each in (await memory.list(types="fact")).memories)
['Ana moved to Lisbon in March 2025.', 'Ben works at a bakery in Ghent.']
## history
>>> fact = (await memory.recall("bakery", types=["fact"])).results[0]
>>> [event.event for event in (await memory.history(fact.id)).events]
['created']
## explain
>>> fact = (await memory.recall("bakery", types=["fact"])).results[0]
>>> (await memory.explain(fact.id)).derived_from[0].content
'Ben works at a bakery in Ghent.'
## weak
>>> (await memory.weak(below=0.5)).memories
()
## embeddings
>>> len((await memory.embeddings(limit=2)).embeddings)
2
## show_graph
>>> lisbon = await memory.show_graph("Lisbon", depth=1)
>>> lisbon.nodes[0].name, lisbon.complete
('Lisbon', True)
## graph_statistics
>>> (await memory.graph_statistics()).orphans
0
## proposed_merges
>>> [(each.name, each.alias) for each in (await memory.proposed_merges()).merges]
[]
## get_entity
>>> (await memory.get_entity("lisbon")).name
'Lisbon'
## entities
>>> [each.name for each in (await memory.entities("lis")).entities]
['Lisbon']
## scopes
>>> [each.scope for each in (await memory.scopes()).scopes]
['ana']
## stats
>>> (await memory.stats()).types
{'episodic': 2, 'fact': 2}
## agreement
>>> [(each.decider, each.judged) for each in (await memory.agreement()).deciders]
[('live', 0)]
## remember
>>> (await memory.remember("critical: Never ring Ana before nine")).dedup.action
'stored_new'
## modify
>>> rule = (await memory.recall("ring Ana", types=["rule"])).results[0]
>>> (await memory.modify(rule.id, importance=0.9, reason="asked")).version
2
## modify_many
>>> rule = (await memory.recall("ring Ana", types=["rule"])).results[0]
>>> patch = {"memory_id": rule.id, "importance": 0.95}
>>> (await memory.modify_many([patch], reason="asked")).changes[0].version
3
## correct
>>> rule = (await memory.recall("ring Ana", types=["rule"])).results[0]
>>> right = "Never ring Ana before ten"
>>> (await memory.correct(rule.id, right, reason="she said so")).version
4
## pin
>>> fact = (await memory.recall("bakery", types=["fact"])).results[0]
>>> (await memory.pin(fact.id)).status
'updated'
## unpin
>>> fact = (await memory.recall("bakery", types=["fact"])).results[0]
>>> (await memory.unpin(fact.id)).status
'updated'
## preview_forget
>>> preview = await memory.preview_forget(query="ring Ana", types=["rule"])
>>> [each.content for each in preview.candidates]
['Never ring Ana before ten']
## forget
>>> rule = (await memory.recall("ring Ana", types=["rule"])).results[0]
>>> forgotten = await memory.forget([rule.id], reason="outdated", force=True)
>>> [each.status for each in forgotten.changes]
['forgotten']
## recover
>>> forgotten = (await memory.list(deleted=True)).memories[0]
>>> (await memory.recover(forgotten.id)).status
'recovered'
## forget_one
>>> rule = (await memory.recall("ring Ana", types=["rule"])).results[0]
>>> (await memory.forget_one(rule.id, "outdated", force=True)).status
'forgotten'
## decay
>>> (await memory.decay(dry_run=True)).faded
0
## confirm
>>> fact = (await memory.recall("bakery", types=["fact"])).results[0]
>>> (await memory.confirm(fact.id)).protected
True
## alias
>>> (await memory.alias("Lisbon", "Lisboa")).status
'added'
## unalias
>>> (await memory.unalias("Lisbon", "Lisboa")).status
'separated'
## edit_entity
>>> city = await memory.edit_entity("Lisbon", rename="Lisboa", type="place")
>>> city.name, city.aliases, city.version
('Lisboa', ('Lisbon',), 2)
## add_to_graph
>>> relation = {"source": "Ana", "relationship": "owns", "target": "Oboe"}
>>> added = await memory.add_to_graph({"entities": [{"name": "Oboe"}], "relations": [relation]})
>>> added.status, added.added.entities, added.added.relations
('added', ('Oboe',), ('Ana owns Oboe',))
## remove_from_graph
>>> relation = {"source": "Ana", "relationship": "owns", "target": "Oboe"}
>>> (await memory.remove_from_graph({"relations": [relation]})).removed.relations
('Ana owns Oboe',)
## command_result
>>> await memory.command_result("0b9e7c1a-6a53-4c0e-9f3e-5d1f6b0c7a11")
## turn_results
>>> (await memory.turn_results("0b9e7c1a-6a53-4c0e-9f3e-5d1f6b0c7a11")).turns
()
## erase
>>> _ = await memory.remember("The spare key is under the flowerpot")
>>> spare = (await memory.recall("spare key")).results[0]
>>> erased = await memory.erase([spare.id], reason="she asked for it")
>>> [each.status for each in erased.changes], erased.erasure
(['erased'], 'done')
## preview_decay
>>> (await memory.preview_decay()).faded
0
## preview_erase_scope
>>> (await memory.preview_erase_scope("nobody")).memories
0
## erase_scope
>>> (await memory.erase_scope("nobody", reason="she left", memories=0)).memories
0
## documents
>>> [each.title for each in (await memory.documents()).documents]
['Kettle']
## get_document
>>> kettle = (await memory.documents()).documents[0]
>>> (await memory.get_document(kettle.id)).kind
'text'
## document_chunks
>>> kettle = (await memory.documents()).documents[0]
>>> [each.content for each in (await memory.document_chunks(kettle.id)).chunks]
['The kettle holds two litres.']
## delete_document
>>> kettle = (await memory.documents()).documents[0]
>>> (await memory.delete_document(kettle.id, reason="sold")).forgotten
1
## sessions
>>> _ = await memory.add("We go to Oslo in May.", speaker="Ana", session_id="trip")
>>> [(each.session_id, each.turns) for each in (await memory.sessions(open=True)).sessions]
[('trip', 1)]
## update_short_term_memory
>>> (await memory.update_short_term_memory("trip", "Ana plans a trip to Oslo.")).status
'updated'
## session_memory
>>> short_term = (await memory.session_memory("trip")).short_term
>>> short_term.summary.text, [turn.content for turn in short_term.turns]
('Ana plans a trip to Oslo.', ['We go to Oslo in May.'])
## session_timeline
>>> [(turn.content, len(turn.facts)) for turn in (await memory.session_timeline("trip")).turns]
[('We go to Oslo in May.', 0)]
## end_session
>>> (await memory.end_session("trip")).status
'ended'
## set_privacy
>>> (await memory.set_privacy("full", "Zoe", reason="she asked")).before
'none'
## privacy
>>> [(each.person, each.level) for each in (await memory.privacy()).levels]
[('Zoe', 'full')]
## proposals
>>> (await memory.proposals()).proposals
()
## apply_proposals
>>> await memory.apply_proposals(all=True)
Traceback (most recent call last):
palimpsest.ops.errors.NotFoundError: no proposal waits for review
## dismiss_proposals
>>> await memory.dismiss_proposals(all=True)
Traceback (most recent call last):
palimpsest.ops.errors.NotFoundError: no proposal waits for review
## flags
>>> "value" in (await memory.flags()).flags[0]
True
## set_flags
>>> (await memory.set_flags("ana", autonomous_frozen=False, reason="as before")).status
'set'
## status
>>> (await memory.status()).stages[0].lag
0
## diagnose
>>> (await memory.diagnose("queue")).status
'healthy'
## run_job
>>> (await memory.run_job("retention")).runs[0].outcome
'ok'
## retention
>>> (await memory.retention()).windows[1].days
180
## set_retention
>>> (await memory.set_retention("ana", history_days=30)).windows["history_days"]
30
## sweep_retention
>>> (await memory.sweep_retention(dry_run=True)).left
()
## repair_domain
>>> (await memory.repair_domain("index", dry_run=True)).scopes
{}
## dead_letters
>>> (await memory.dead_letters()).dead_letters
()
## get_dead_letter
>>> await memory.get_dead_letter("0123abcd")
Traceback (most recent call last):
palimpsest.ops.errors.NotFoundError: there is no dead letter 0123abcd; ...
## amend_dead_letter
>>> await memory.amend_dead_letter("0123abcd", "{}", dry_run=True)
Traceback (most recent call last):
palimpsest.ops.errors.NotFoundError: there is no dead letter 0123abcd; ...
## discard
>>> await memory.discard(["0123abcd"])
Traceback (most recent call last):
palimpsest.ops.errors.NotFoundError: there is no dead letter 0123abcd; ...
## redrive
>>> (await memory.redrive(all=True)).redriven
()
## simulate
>>> (await memory.simulate()).by_reason
{'swept': 3}
## archive
>>> (await memory.archive(dry_run=True)).moved
0
## embedding_status
>>> (await memory.embedding_status()).partitions[0].missing
0
## migrate_embedding
>>> (await memory.migrate_embedding(to="hashing", dimensions=96)).changes[0].to
'hashing-1-96'
## switch_embedding
>>> (await memory.switch_embedding(allow_missing=1000)).changes[0].state
'done'
## embedding_back
>>> (await memory.embedding_back()).changes[0].live
'hashing-1-96'
## cancel_embedding
>>> await memory.cancel_embedding()
Traceback (most recent call last):
palimpsest.ops.errors.RequestError: there is no migration; begin one with `palimpsest embedding ...
## drop_embedding
>>> (await memory.drop_embedding()).changes
()
## replays
>>> [each.kind for each in (await memory.replays()).replays]
['rebuild']
## get_replay
>>> rebuild = (await memory.replays()).replays[0]
>>> (await memory.get_replay(rebuild.id)).kind
'rebuild'
## stop_replay
>>> ended = (await memory.replays()).replays[0]
>>> (await memory.stop_replay(ended.id)).state
'done'
## replay_differences
>>> await memory.replay_differences((await memory.replays()).replays[0].id)
Traceback (most recent call last):
palimpsest.ops.errors.NotFoundError: it told of no differences, or they were removed
## branches
>>> [(each.name, each.kind) for each in (await memory.branches()).branches]
[('copy', 'rebuild')]
## curation
>>> await memory.curation("copy")
Traceback (most recent call last):
palimpsest.ops.errors.RequestError: copy is no re-extraction: what people did was done again as ...
## promotions
>>> (await memory.promotions()).promotions
()
## drop_branch
>>> (await memory.drop_branch("copy")).dropped
'copy'
"""
EXAMPLES: Final[Mapping[str, str]] = {
    name: f"\n{example}"
    for name, _, example in (each.partition("\n") for each in _WRITTEN.split("\n## ")[1:])
}
