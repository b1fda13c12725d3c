#!/usr/bin/env python3
"""Which pairs of texts are the same date for Python's dateutil: writes pairs.json.

    pip install python-dateutil==2.9.0.post0
    make_golden.py

Pairs hold texts with and without a year or a time. dateutil takes what is missing from today; a pair is kept only if its
verdict is the same for several days, so that the file does not depend on the day it was made.
"""
import datetime
import itertools
import json
import pathlib
import warnings

import dateutil.parser

warnings.simplefilter("ignore")
DAYS = [datetime.datetime(2023, 3, 14), datetime.datetime(2025, 7, 6), datetime.datetime(2026, 10, 29)]
GROUPS = [
    ["April 2, 2024", "4/2/2024", "2024-04-02", "2 April 2024", "Apr 2nd 2024", "2024/04/02", "20240402", "Tue, April 2 2024",
     "04-02-2024", "April 2 24", "4/2/24", "2024-04-02T00:00:00", "2,4,2024", "02.04.2024", "April 2,2024", "2024-04-03"],
    ["13/4/2024", "4/13/2024", "April 13, 2024", "13. April 2024", "2024-04-13", "13.4.2024", "2024-13-04"],
    ["10:30 PM", "22:30", "10:30pm", "10:30 p.m.", "10:30", "22:30:00"],
    ["10am", "10:00", "10 am", "10:00:00", "10 pm", "10 A.M."],
    ["2024-04-02T10:30", "April 2, 2024 at 10:30 am", "2024-04-02 10:30:00", "20240402T1030", "4/2/2024 10:30",
     "2024-04-02 10:30:05", "2024-04-02 10:30Z", "2024-04-02T10:30:00+00:00", "2024-04-02T10:30:00+02:00",
     "2024-04-02 10:30 UTC"],
    ["2024-04-02 10", "2024-04-02 10:00", "April 2 2024 10am"],
    ["April 2024", "2024-04", "4/2024", "04-2024", "Apr 2024", "May 2024"],
    ["April 2", "4/2", "2nd of April", "Apr. 2", "2 April", "April 3", "2/4"],
    ["Tuesday", "Tue", "tuesday", "Wednesday", "tues"],
    ["February 29 2024", "2024-02-29", "February 29 2023", "2023-02-29", "29 Feb 2024"],
    ["Sept 5 2024", "Sep. 5, 2024", "5th September, 2024", "2024-09-05", "9/5/2024", "September 5 2024"],
    ["4/2/99", "1999-04-02", "April 2, 1999"],
    ["tomorrow", "", "noon", "next Monday", "April 31 2024", "2024-04-02 25:00", "hello", "the 2nd of April 2024"],
]


def date_of(text, today):
    try:
        return dateutil.parser.parse(text, default=today)
    except (dateutil.parser.ParserError, OverflowError):
        return None


def verdict(a, b, today):
    first, second = date_of(a, today), date_of(b, today)
    return first is not None and second is not None and first == second


def main():
    pairs = []
    for group in GROUPS:
        for a, b in itertools.combinations_with_replacement(group, 2):
            verdicts = {verdict(a, b, today) for today in DAYS}
            if len(verdicts) == 1:
                pairs.append([a, b, verdicts.pop()])
    path = pathlib.Path(__file__).resolve().parent / "pairs.json"
    path.write_text(json.dumps(pairs, ensure_ascii=False, indent=0) + "\n")
    print(len(pairs), "pairs,", sum(pair[2] for pair in pairs), "equal")


if __name__ == "__main__":
    main()
