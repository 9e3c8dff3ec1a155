"""Quantities: parsing, rounding, arithmetic and canonical text."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scheduler.api.quantity import Format, Quantity, QuantityError, parse_quantity


def _exact(quantity: Quantity) -> Fraction:
    return Fraction(quantity.mantissa) * Fraction(10) ** quantity.power


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [
        ("0", 0, 0),
        ("1", 1, 1000),
        ("1500m", 2, 1500),
        ("0.5", 1, 500),
        ("100u", 1, 1),
        ("1n", 1, 1),
        ("-1500m", -2, -1500),
        ("1k", 1000, 1_000_000),
        ("1Ki", 1024, 1_024_000),
        ("1.5Gi", 1_610_612_736, 1_610_612_736_000),
        ("80Gi", 85_899_345_920, 85_899_345_920_000),
        ("1e3", 1000, 1_000_000),
        ("12E2", 1200, 1_200_000),
        ("1E", 10**18, 0),
        (".5", 1, 500),
        ("+5", 5, 5000),
        ("5.", 5, 5000),
    ],
)
def test_value_and_milli_value_round_away_from_zero(text: str, value: int, milli: int) -> None:
    """value() and milli_value() round fractions up, and give 0 where an int64 overflows, as upstream does."""
    quantity = parse_quantity(text)
    assert (quantity.value(), quantity.milli_value()) == (value, milli)


@pytest.mark.parametrize("text", ["Mi", ".", "-", "+", "-.Ki", "00"])
def test_texts_without_digits_are_zero(text: str) -> None:
    """Upstream takes a sign, a point or a suffix without digits for zero."""
    assert parse_quantity(text).value() == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "quantities must match the regular expression"),
        (" 1", "quantities must match the regular expression"),
        ("1 ", "quantities must match the regular expression"),
        ("1.1.1", "quantities must match the regular expression"),
        ("1KI", "quantities must match the regular expression"),
        ("x", "quantities must match the regular expression"),
        ("1K", "unable to parse quantity's suffix"),
        ("1kk", "unable to parse quantity's suffix"),
        ("1e", "unable to parse quantity's suffix"),
        ("Ei", "unable to parse numeric part of quantity"),
    ],
)
def test_nonsense_is_refused_with_upstreams_words(text: str, message: str) -> None:
    """A text that is no quantity raises QuantityError, which carries the text."""
    with pytest.raises(QuantityError, match=message) as caught:
        parse_quantity(text)
    assert caught.value.text == text


def test_finer_than_nano_rounds_away_from_zero() -> None:
    """Whoever asks for a tenth of a nano gets a nano."""
    assert parse_quantity("0.1n") == parse_quantity("1n")
    assert parse_quantity("-0.1n") == parse_quantity("-1n")
    assert parse_quantity("0.0000000011") == parse_quantity("2n")


def test_binary_amounts_are_capped_at_int64() -> None:
    """With a binary suffix nothing exceeds 2**63-1; without one it may."""
    assert parse_quantity("9Ei") == parse_quantity("8Ei") == parse_quantity(str(2**63 - 1))
    assert parse_quantity("-9Ei") == parse_quantity(str(1 - 2**63))
    assert parse_quantity("10E") > parse_quantity("9Ei")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1000m", "1"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("1024Ki", "1Mi"),
        ("0.5Gi", "512Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("0.0001Ki", "102400u"),
        ("1e3", "1e3"),
        ("100e-1", "10"),
        ("1500e3", "1500e3"),
        ("0Mi", "0"),
        ("1.234M", "1.234M"),
        ("1.2M", "1200k"),
        # Beyond the last suffix upstream prints none at all (apimachinery 0.37, Quantity.String).
        ("25000000000000000000k", "25"),
        ("1000000000000000000000000", "1"),
    ],
)
def test_text_is_canonical(text: str, canonical: str) -> None:
    """str() gives the mantissa without trailing zeros and the suffix of the format (what upstream caches stays)."""
    assert str(parse_quantity(text)) == canonical


def test_adding_to_zero_takes_the_others_format() -> None:
    """A sum keeps the left format, unless the left side is zero."""
    assert str(parse_quantity("0") + parse_quantity("1Ki")) == "1Ki"
    assert (parse_quantity("1") + parse_quantity("1Ki")).format is Format.DECIMAL_SI
    assert str(parse_quantity("1Ki") - parse_quantity("1Ki")) == "0"


@pytest.mark.parametrize("text", ["1.5Gi", "100Ti", "1Pi", "9223372036854775807", "1000m", "1.0"])
def test_amounts_upstream_keeps_as_decimals_are_no_integers(text: str) -> None:
    """exact_int64() is None for big decimals and fractions in form, even when the amount is whole."""
    assert parse_quantity(text).exact_int64() is None


def test_hostile_exponents_stay_cheap() -> None:
    """An exponent of two thousand million is compared and summed without writing the number out."""
    huge, tiny = parse_quantity("1e2000000000"), parse_quantity("1e-2000000000")
    assert huge > tiny > parse_quantity("0")
    assert huge + tiny > parse_quantity("1")
    assert str(huge) == "100e1999999998"
    assert huge.value() == 0
    assert hash(huge) != hash(tiny)


_QUANTITIES = st.builds(
    lambda sign, whole, fraction, suffix: f"{sign}{whole}{'.' + fraction if fraction else ''}{suffix}",
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 10**20).map(str),
    st.text("0123456789", max_size=12),
    st.sampled_from(["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "e3", "e-2", "E4"]),
)


@given(_QUANTITIES)
def test_canonical_text_means_the_same_amount(text: str) -> None:
    """Printing and parsing again changes nothing but the format, where there is a suffix for the amount."""
    quantity = parse_quantity(text)
    assume(abs(_exact(quantity)) < 1000 * 10**18)
    again = parse_quantity(str(quantity))
    assert again == quantity
    assert hash(again) == hash(quantity)
    assert str(again) == str(quantity)


@given(_QUANTITIES, _QUANTITIES)
def test_sums_and_order_are_exact(left_text: str, right_text: str) -> None:
    """Arithmetic and comparison agree with fractions."""
    left, right = parse_quantity(left_text), parse_quantity(right_text)
    assert _exact(left + right) == _exact(left) + _exact(right)
    assert _exact((left + right) - right) == _exact(left)
    assert (left < right) == (_exact(left) < _exact(right))
    assert (left == right) == (_exact(left) == _exact(right))


@given(_QUANTITIES)
def test_rounding_up_is_the_nearest_whole_amount_outwards(text: str) -> None:
    """value() is the amount, or the next whole number away from zero."""
    quantity = parse_quantity(text)
    exact = _exact(quantity)
    if abs(exact) < 2**62:
        rounded = quantity.value()
        assert abs(rounded) >= abs(exact)
        assert abs(rounded) - abs(exact) < 1


@pytest.mark.parametrize(
    "text", ["9" * 4001, "0." + "0" * 4000 + "1", "1" * 5000 + "Ei", "0" * 1_000_000 + "1", "1e" + "9" * 5000]
)
def test_a_text_longer_than_any_amount_is_refused_at_once(text: str) -> None:
    """Reading it would take quadratic time; the error shows its beginning only."""
    with pytest.raises(QuantityError, match="more than 4000 characters") as refused:
        parse_quantity(text)
    assert len(refused.value.text) < 100


@pytest.mark.parametrize("text", ["9" * 3990 + "e1999", "-" + "9" * 3990 + "e1999", "9" * 3999, "1e-2147483648"])
def test_the_longest_amounts_can_be_added_compared_and_printed(text: str) -> None:
    """Python refuses to print integers of more than 4,300 digits at once."""
    amount = parse_quantity(text)
    total = amount + amount
    assert (total > amount) is (amount.sign() > 0)
    assert str(total)
    assert total.value() == 0 or amount.power < 0
    assert hash(total) != hash(amount)
