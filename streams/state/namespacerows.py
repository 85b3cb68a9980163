"""How the rows of a namespace are made from its state, and its state from stored rows: part by part."""

from collections.abc import Iterable, Iterator, Mapping

from schemas import limits
from schemas.podsharing import shared
from streams.state.held import answers_size, encoded_size, hpa_size, pod_size, sample_size, scale_size
from streams.state.logrecords import asked
from streams.state.namespace import Namespace, limit_of_arrival
from streams.state.namespacekeys import (
    FIRST_ROW,
    query_key,
    row_of_answer,
    row_of_question,
    spread_over,
    stored_part,
)
from streams.state.rows import (
    NOTHING_APPLIED,
    SPLIT_PARTS,
    AnswerRow,
    ListProgress,
    NamespaceRow,
    PodEntry,
    QueryKey,
    SampleRow,
    SeriesKey,
    ViewRow,
    answer_row,
    is_series,
)


def rows_of_namespace(namespace: Namespace, parts: Iterable[int]) -> list[tuple[int, NamespaceRow]]:
    """Make the rows of these parts: part 0 comes last, so that it is never ahead of another one."""
    made = {part: _empty_row(namespace, part) for part in parts}
    if len(namespace.applied) <= SPLIT_PARTS:
        _fill_few(namespace, made)
    else:
        _fill_many(namespace, made)
    if 0 in made:
        _fill_first(namespace, made[0])
    for part, row in made.items():
        row.growths = namespace.held.growths_of(part, len(namespace.applied))
        row.refused = namespace.held.refused.get(part, {})
    if namespace.view_part in made and namespace.view != ViewRow():
        made[namespace.view_part].view = namespace.view
    return sorted(made.items(), key=lambda item: (item[0] == 0, item[0]))


def _fill_few(namespace: Namespace, made: dict[int, NamespaceRow]) -> None:
    """Fill the rows of a namespace whose pods and pushed samples are the last part, and the rest the first."""
    if (row := made.get(len(namespace.applied) - 1)) is not None:
        row.pods, row.samples = namespace.pods, list(namespace.series.items())
    if (row := made.get(0)) is not None:
        row.answers = [answer for _, _, answer in _all_answers(namespace)]
        row.scales = list(namespace.scales.items())
    of_series = len(namespace.applied) - 1
    for key, arrival in namespace.arrivals.items():
        if (row := made.get(of_series if is_series(key) else 0)) is not None:
            row.arrivals.append((key, arrival))


def _all_answers(namespace: Namespace) -> Iterator[tuple[QueryKey, int, AnswerRow]]:
    """Give the answers to store: query, number of the part, answer or part of one."""
    for query, answer in namespace.answers.items():
        if query not in namespace.answer_slots:
            yield query, 0, answer
    for query, slots in namespace.answer_slots.items():
        for number, slot in slots.items():
            for part in slot:
                yield query, number, part


def _fill_many(namespace: Namespace, made: dict[int, NamespaceRow]) -> None:
    for name, entry in namespace.pods.items():
        if (row := made.get(namespace.part_of(name))) is not None:
            row.pods[name] = entry
    for query, number, answer in _all_answers(namespace):
        if (row := made.get(namespace.part_of_answer(query, number))) is not None:
            row.answers.append(answer)
    for key, samples in namespace.series.items():
        _spread(namespace, made, key, samples)
    for question, arrival in namespace.arrivals.items():
        if (row := made.get(namespace.part_of_arrival(question))) is not None:
            row.arrivals.append((question, arrival))

    for target, scale in namespace.scales.items():
        if (row := made.get(namespace.part_of_scale(target))) is not None:
            row.scales.append((target, scale))
    for part, taken in namespace.taken.items():
        if part in made:
            made[part].taken = list(taken)


def _spread(namespace: Namespace, made: dict[int, NamespaceRow], key: SeriesKey, samples: dict[str, SampleRow]) -> None:
    split: dict[int, dict[str, SampleRow]] = {}
    for name, sample in samples.items():
        split.setdefault(namespace.part_of(name), {})[name] = sample
    for part, some in split.items():
        if part in made:
            made[part].samples.append((key, some))


def _empty_row(namespace: Namespace, part: int) -> NamespaceRow:
    return NamespaceRow(
        cluster=namespace.cluster,
        namespace=namespace.name,
        part=part,
        parts=len(namespace.applied),
        pod_list=namespace.pod_lists[part],
    )


def _fill_first(namespace: Namespace, row: NamespaceRow) -> None:
    row.autoscalers, row.hpa_list = list(namespace.directory.items()), namespace.hpa_list
    row.rivals, row.rivals_coming = namespace.rivals, namespace.rivals_coming
    row.watches, row.listed, row.born = namespace.watches, namespace.listed, namespace.born
    row.commands, row.ignored = namespace.commands, namespace.ignored
    row.idle_ms, row.unused = namespace.idle_ms, namespace.unused


def load_namespace(namespace: Namespace, rows: Mapping[int, tuple[int, NamespaceRow]]) -> None:
    """Load stored rows: part -> (applied offset, row)."""
    parts = rows[0][1].parts if 0 in rows else 1
    stored = [rows.get(stored_part(part, parts)) for part in range(parts)]
    namespace.applied = [NOTHING_APPLIED if each is None else each[0] for each in stored]
    namespace.pod_lists = [ListProgress() if each is None else each[1].pod_list for each in stored]
    for each in stored:
        if each is not None:
            _load_part(namespace, each[1])
    for query in list(namespace.answer_slots):
        _settle(namespace, query)
    _count(namespace)


def _settle(namespace: Namespace, query: QueryKey) -> None:
    """Take a loaded answer that came whole out of the slots."""
    slots = namespace.answer_slots[query]
    if list(slots) == [0] and len(slots[0]) == 1 and slots[0][0].parts == 1:
        namespace.answers[query] = slots[0][0]
        del namespace.answer_slots[query]
    else:
        namespace.choose_answer(query)


def _load_part(namespace: Namespace, row: NamespaceRow) -> None:
    for name, entry in row.pods.items():
        pod = shared(entry.pod)
        namespace.pods[name] = PodEntry(pod, entry.mark)
        namespace.membership.put(pod)
    for stored in row.answers:
        query = query_key(asked(stored))
        answer = stored
        if stored.stored is not None:
            answer = answer_row(stored.stored, stored.time_ms, stored.source)
        number = answer.part
        slots = namespace.answer_slots.get(query, {})
        namespace.answer_slots[query] = {**slots, number: (*slots.get(number, ()), answer)}
    for key, samples in row.samples:
        namespace.series.setdefault(key, {}).update(samples)
    namespace.arrivals.update(row.arrivals)
    if row.taken:
        namespace.taken[row.part] = dict.fromkeys(row.taken)
    if row.view is not None:
        namespace.view = row.view
    namespace.scales.update(row.scales)
    namespace.held.load_growths(row.growths)
    if row.refused:
        namespace.held.refused[row.part] = row.refused
    if row.part:
        return
    namespace.directory, namespace.hpa_list = row.all_autoscalers(), row.hpa_list
    namespace.rivals, namespace.rivals_coming = row.rivals, row.rivals_coming
    namespace.watches, namespace.listed, namespace.born = row.watches, row.listed, row.born
    namespace.commands, namespace.ignored = row.commands, row.ignored
    namespace.idle_ms, namespace.unused = row.idle_ms, row.unused
    for hpa, known in namespace.directory.items():
        namespace.join_target(known.target, hpa)


def _count(namespace: Namespace) -> None:
    """Count what was read back from rows."""
    held = namespace.held
    _count_answers(namespace)
    for name, entry in namespace.pods.items():
        held.load(limits.ROW_PODS, spread_over(name), pod_size(entry.pod))
    for key, samples in namespace.series.items():
        for name, sample in samples.items():
            held.load(limits.ROW_SAMPLES, spread_over(name), sample_size(key, name, sample))
    for question in namespace.arrivals:
        held.load(limit_of_arrival(question), row_of_question(question), encoded_size(question))
    for hpa, known in namespace.directory.items():
        held.load(limits.ROW_HPAS, FIRST_ROW, hpa_size(hpa, known), known.own)
    held.hpas = len(namespace.directory)
    for target, scale in namespace.scales.items():
        held.load(limits.ROW_SCALES, row_of_question(target), scale_size(target, scale))
    for rival in (*namespace.rivals, *namespace.rivals_coming):
        held.load(limits.ROW_RIVALS, FIRST_ROW, encoded_size(rival))
    for name, command in namespace.commands.items():
        held.load(limits.ROW_COMMANDS, FIRST_ROW, encoded_size((name, command)))


def _count_answers(namespace: Namespace) -> None:
    for query, number, answer in _all_answers(namespace):
        namespace.held.load(limits.ROW_ANSWERS, row_of_answer(query, number), answers_size((answer,)))
