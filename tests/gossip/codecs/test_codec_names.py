"""Codecs by name, with parameters, and what is said of those that cannot be meant."""

from __future__ import annotations

import numpy as np
import pytest
from codec_cases import ALL, normal

from gossip import codecs
from gossip.errors import SettingsError


def test_there_are_eleven_and_each_says_what_it_is() -> None:
    names = codecs.names()
    assert names == ["adacomp", "bf16", "fp16", "int2", "int4", "int8", "none", "qsgd", "sign", "terngrad", "topk"]
    assert all(codecs.summary(name).endswith(".") for name in names)


@pytest.mark.parametrize("text", ALL)
def test_a_codec_spelled_out_is_the_same_codec(text: str) -> None:
    codec = codecs.parse(text)
    again = codecs.parse(codecs.spell(codec))
    values = normal(1000, 1).astype(np.float32)
    assert codecs.spell(again) == codecs.spell(codec)
    assert again.encode(values, keys=(1,)).tobytes() == codec.encode(values, keys=(1,)).tobytes()


def test_defaults_and_shares() -> None:
    assert codecs.spell(codecs.parse("int8")) == "int8:block=256"
    assert codecs.spell(codecs.parse("int4")) == "int4:block=64"
    assert codecs.spell(codecs.parse("topk:share=1%")) == codecs.spell(codecs.get("topk", share=0.01))
    assert codecs.spell(codecs.get("none")) == "none"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("int9", "no codec is called 'int9'; did you mean int8 or int4"),
        ("top-k", "did you mean topk"),
        ("zip", "there are: adacomp, bf16, fp16, int2, int4"),
        ("", "no codec is called ''"),
        ("int8:blok=64", "int8 has no parameter 'blok'; its parameters: block"),
        ("bf16:block=64", "bf16 has no parameter 'block'; it takes no parameters"),
        ("int8:block", "'block' is not of the form key=value"),
        ("int8:block=64,block=8", "gives 'block' twice"),
        ("int8:block=x", "int8: block takes an integer, not 'x'"),
        ("int8:block=0", "int8: block must be a multiple of 8 from 8 to 65536, not 0"),
        ("int4:block=12", "int4: block must be a multiple of 8"),
        ("int2:block=4", "int2: block must be a multiple of 8"),
        ("sign:block=-8", "sign: block must be a multiple of 8"),
        ("terngrad:block=65544", "not 65544"),
        ("terngrad:clip=-1", "terngrad: clip must be a number of standard deviations"),
        ("terngrad:clip=nan", "terngrad: clip must be a number of standard deviations"),
        ("qsgd:levels=0", "qsgd: levels, their number on either side of 0, must be from 1 to 127, not 0"),
        ("qsgd:levels=128", "not 128"),
        ("topk:share=0", "topk: share must be above 0% and at most 100%, not 0"),
        ("topk:share=101%", "topk: share must be above 0% and at most 100%, not 101%"),
        ("topk:share=nan", "topk: share must be above 0% and at most 100%"),
        ("topk:share=some", "topk: share must be above 0% and at most 100%, not some"),
        ("topk:values=sign", "topk: values must be one of none, bf16, fp16, int8, int4, not 'sign'"),
        ("adacomp:block=7", "adacomp: block must be a multiple of 8"),
    ],
)
def test_what_cannot_be_meant(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        codecs.parse(text)
    assert said in str(caught.value)


def test_only_what_is_fine_and_whole_may_carry_mass() -> None:
    mass = {name for name in codecs.names() if codecs.get(name).carries_mass}
    assert mass == {"none", "bf16", "fp16", "int8", "int4"}
    assert {name for name in codecs.names() if not codecs.get(name).quantises} == {"topk", "adacomp"}
