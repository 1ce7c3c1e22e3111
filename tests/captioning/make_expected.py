"""Writes `expected.json`: tokens and scores by `pycocoevalcap` 1.2 (needs Java), so that the tests need none.

python tests/captioning/make_expected.py
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.meteor.meteor import Meteor
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

FILE = Path(__file__).with_name("expected.json")
LINES = """
A man riding a wave on top of a surfboard.
A man rides a wave on a surfboard in the ocean .
A dog runs .
A dog
Dog
the the the the the dog the the
A brown dog is running through the green grass, chasing a red ball.
Two dogs run; one dog jumps: the other one barks!
It's the dog's ball, isn't it? They're sure it can't be the dogs' ball.
He said "stop" and 'go' and ``wait'' and “please” and \u2018now\u2019.
I cannot, I'm gonna, gotta, wanna, lemme, gimme; 'tis fun, 'twas fun, they'd've gone.
rock 'n' roll in the '90s, O'Brien's o'clock, ma'am, s'mores, y'all, 'em, ol' Joe, d'Artagnan, Ho'ohu
Mr. Smith met Mrs. Jones, Dr. Who and Ms. Li in St. Louis at 5 p.m. on Jan. 5
The U.S. team of Washington D.C. won vs. the U.K. team, e.g. J.K. Rowling etc.
A sign on 5th Ave. near Woodfield Rd.
A sign that reads K.
A sign that reads K. The man looks at it.
No. 5 is not no. 5, and the answer is no. See Fig. 3 on p. 7
A room with a t.v., a TV. and a tv
Wait... for.. it.... now . . . go
a well-known, 3-year-old T-shirt - and -- or --- then ---- a long----dash-
a\u2013b \u2014 c \u2015 d
black/white and/or he/she w/o 24/7 a/b/c/d 1/2 3 1/2 22 3/4 2-1/2 12/25/2010 05-06-78
3,000 3.5 .5 5. $5 $5.00 US$5 £5 €5 5¢ 5% 10:30am 10am 1st 22nd 1990s 5'10" 6ft +5 -5 5x7 1,2,3
Call (650) 723-0293 or 650-723-0293 or 723-0293 now
See www.google.com, http://a.bc/d?e=f&g#h. or https://x.yz/ or google.com/maps! ftp://x.y
Mail me.you@x.co.uk, <a@b.com> or @user #tag #1 # 1 report.pdf my.file.txt a.b word.Word
AT&T, R&B, r&b, B&W, Q&A, M&M's, black&white, black & white, &amp; &lt;3 A&amp;P C++ C# c
(a) [b] {c} <d> </d> <e f="g h"> a < b > c <unk> <start>
:) :-( ;) :D =) :/ <3 ^_^ -_- o_O (: 8) :'(
* ** a*b _ __ a_b ~ ^ | \\ = + @ % %d & && ## $ $$ !! ?? ?! !?! # `
café naïve façade Zürich Ærø smörgåsbord ÉCOLE Straße
cafe\u0301 nai\u0308ve a\u00adb zero\u200bwidth no\u00a0break em\u2003space
emoji 😀 dog 🐶s ☀ ♥ ™ © ½ ¼ ² ³ °C № …
日本語 テスト русский язык עברית ελληνικά हिन्दी 한국어 ١٢٣
A man,wearing a hat.Then he leaves.He was happy
a  double   space\tand a tab
.
!!! ???

A girl is eating a cupcake with a fork on a yellow table .
a girl eats a cupcake
Three people stand in front of a big red double-decker bus in London.
people standing in front of a bus
A cat sleeps on top of the laptop computer's keyboard.
a cat is sleeping on a laptop computer
A group of people flying kites on the beach at sunset
some people fly kites at the beach
"""
TEXTS = LINES.split("\n")[1:-1]


def main() -> None:
    apart = [{"caption": part} for text in TEXTS for part in (text, "x")]
    texts = PTBTokenizer().tokenize({0: apart})[0][::2]
    draw = random.Random(0)
    sets = []
    for size in (1, 2, 3, 4, 5, 7) * 6:  # rows of TEXTS: a caption and the references of its image
        references = [draw.randrange(len(TEXTS)) for _ in range(size)]
        near = draw.random() < 0.4
        sets.append(
            [references[0] ^ 1 if near and references[0] ^ 1 < len(TEXTS) else draw.randrange(len(TEXTS)), references]
        )
    sets += [[0, [1]], [1, [0, 1]], [41, [42, 41]], [5, [0, 5]]]
    own = {image: [texts[caption]] for image, (caption, _) in enumerate(sets)}
    others = {image: [texts[row] for row in rows] for image, (_, rows) in enumerate(sets)}
    bleus, bleu_per_image = Bleu(4).compute_score(others, own, verbose=0)
    found = {f"bleu_{n + 1}": [bleus[n], bleu_per_image[n]] for n in range(4)}
    for name, scorer in (("rouge_l", Rouge()), ("cider_d", Cider()), ("meteor", Meteor())):
        corpus, per_image = scorer.compute_score(others, own)
        found[name] = [float(corpus), [float(score) for score in per_image]]
    tokens = [[text, *line.split(" ")] if line else [text] for text, line in zip(TEXTS, texts, strict=True)]
    lines = [f'"{name}": {json.dumps(value)}' for name, value in (("sets", sets), *found.items())]
    rows = ",\n".join(json.dumps(row) for row in tokens)
    FILE.write_text("{\n" + ",\n".join(lines) + f',\n"tokens": [\n{rows}\n]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
