/* set_lines.h - selects the lines of a data set's files and converts them to tokens or text, as fairseq's scripts do with
 * grep, sed and Moses. */
#pragma once

#include "data/line_map.h"
#include "data/text_chain.h"

#include <stdatomic.h>

typedef enum set_lines_kind {
    SET_LINES,    /* one sentence per line */
    SET_TALKS,    /* IWSLT's training text: no addresses and keywords; titles and descriptions without their tags */
    SET_SEGMENTS, /* XML: the text of segments */
    SET_RAW       /* XML: the text of segments, not tokenized */
} set_lines_kind;

typedef struct set_lines {
    set_lines_kind kind;
    text_chain_options chain;
    atomic_int mended; /* lines with bytes that were zero or not UTF-8, which become spaces */
} set_lines;

/* A line_map without its take function. lines must outlive it. */
line_map set_lines_map(set_lines *lines, int threads);
