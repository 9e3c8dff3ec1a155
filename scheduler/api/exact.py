"""Changes of a stored claim that leave every other byte as it is: in protobuf, where JSON cannot.

The API server keeps opaque parameters as the client sent them. In JSON it shows them without spaces and with ``<``,
``>`` and ``&`` escaped, and any JSON write, patches included, puts that form in their place: to the server the spec (or
the allocation) has changed, which it refuses. So a claim that was created by a client which writes spaces, as Python's
does, can only be changed in protobuf. kube-scheduler speaks protobuf always.

Only what is needed is read: messages are cut into fields, fields are dropped or added, everything else is copied.
Source of the numbers: generated.proto of meta/v1, runtime and resource.k8s.io (v1, v1beta2, v1beta1 agree).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from scheduler.api.resource import FINALIZER, ConsumerReference
from scheduler.errors import UserError

PROTOBUF = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_RAW = 2  # of runtime.Unknown
_METADATA, _STATUS = 1, 3  # of a claim
_UID, _REVISION, _FINALIZERS = 5, 6, 14  # of ObjectMeta
_RESERVED_FOR = 2  # of ResourceClaimStatus
_GROUP, _RESOURCE, _NAME, _CONSUMER_UID = 1, 3, 4, 5  # of ResourceClaimConsumerReference
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_Field = tuple[int, bytes, bytes]
"""(number, content of a length-delimited field or b"", the whole field as it stands)."""


class ExactChange(msgspec.Struct, frozen=True):
    """``finalizer``: ours is added (True), taken off (False) or left (None). ``add`` and ``remove`` (a uid) are
    consumers in reservedFor.
    """

    finalizer: bool | None = None
    add: tuple[ConsumerReference, ...] = ()
    remove: str = ""


class NotProtobufError(UserError):
    """The answer is not what the API server sends for an object in protobuf."""

    def __init__(self, problem: str) -> None:
        super().__init__("ResourceClaim", "", problem)


def identity(body: bytes) -> tuple[str, str]:
    """(uid, resourceVersion) of an object. Raises NotProtobufError."""
    for number, content, _ in _fields(_object(body)):
        if number == _METADATA:
            found = {field: value.decode("utf-8", "replace") for field, value, _ in _fields(content)}
            return found.get(_UID, ""), found.get(_REVISION, "")
    raise NotProtobufError("it has no metadata")


def changed(body: bytes, change: ExactChange) -> bytes:
    """``body`` (an object as the API server sends it) after ``change``. Raises NotProtobufError. Cost: one pass."""

    def of_claim(number: int, content: bytes, whole: bytes) -> bytes:
        if number == _METADATA and change.finalizer is not None:
            return _field(number, _with_finalizer(content, change.finalizer))
        if number == _STATUS and (change.add or change.remove):
            return _field(number, _with_consumers(content, change))
        return whole

    claim = _object(body)
    made = _mapped(claim, of_claim)
    if change.add and not any(number == _STATUS for number, _, _ in _fields(claim)):
        made += _field(_STATUS, _with_consumers(b"", change))
    return _MAGIC + _mapped(body[4:], lambda number, _, whole: _field(number, made) if number == _RAW else whole)


def _with_finalizer(metadata: bytes, there: bool) -> bytes:
    name = FINALIZER.encode()
    kept = _mapped(metadata, lambda n, content, whole: b"" if (n, content) == (_FINALIZERS, name) else whole)
    return kept + _field(_FINALIZERS, name) if there else kept


def _with_consumers(status: bytes, change: ExactChange) -> bytes:
    gone = {consumer.uid for consumer in change.add} | ({change.remove} if change.remove else set())

    def of_status(number: int, content: bytes, whole: bytes) -> bytes:
        return b"" if number == _RESERVED_FOR and _uid_of(content) in gone else whole

    return _mapped(status, of_status) + b"".join(_field(_RESERVED_FOR, _consumer(one)) for one in change.add)


def _uid_of(consumer: bytes) -> str:
    return next((v.decode("utf-8", "replace") for n, v, _ in _fields(consumer) if n == _CONSUMER_UID), "")


def _consumer(consumer: ConsumerReference) -> bytes:
    texts = ((_GROUP, consumer.apiGroup), (_RESOURCE, consumer.resource), (_NAME, consumer.name))
    return b"".join(_field(number, text.encode()) for number, text in (*texts, (_CONSUMER_UID, consumer.uid)))


def _object(body: bytes) -> bytes:
    if not body.startswith(_MAGIC):
        raise NotProtobufError("it does not begin as one")
    for number, content, _ in _fields(body[4:]):
        if number == _RAW:
            return content
    raise NotProtobufError("it holds no object")


def _mapped(message: bytes, function: Callable[[int, bytes, bytes], bytes]) -> bytes:
    return b"".join(function(*field) for field in _fields(message))


def _fields(message: bytes) -> Iterator[_Field]:
    """The fields of a message in their order."""
    place = 0
    while place < len(message):
        start = place
        key, place = _varint(message, place)
        number, wire = key >> 3, key & 7
        content = b""
        if wire == _VARINT:
            _, place = _varint(message, place)
        elif wire == _BYTES:
            size, place = _varint(message, place)
            content, place = message[place : place + size], place + size
        elif wire in (_FIXED64, _FIXED32):
            place += 8 if wire == _FIXED64 else 4
        else:
            raise NotProtobufError(f"wire type {wire} at byte {start}")
        if place > len(message) or not number:
            raise NotProtobufError(f"the field at byte {start} does not end")
        yield number, content, message[start:place]


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            break
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise NotProtobufError(f"a number before byte {place} does not end")


def _field(number: int, content: bytes) -> bytes:
    return _number(number << 3 | _BYTES) + _number(len(content)) + content


def _number(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
