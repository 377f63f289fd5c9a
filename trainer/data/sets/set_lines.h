/* set_lines.h - the lines of a data set's files, and the tokens or the text that they become: what fairseq's scripts do
 * with grep, sed and Moses, as the work of a line_map.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SET_LINES_H
#define SET_LINES_H

#include "data/line_map.h"
#include "data/text_chain.h"

#include <stdatomic.h>

typedef enum set_lines_kind {
    SET_LINES, /* sentences, all of them */
    SET_TALKS, /* IWSLT's training text: without addresses and keywords, titles and descriptions without their tags */
    SET_SEGMENTS, /* XML: the text of segments alone */
    SET_RAW       /* the same as people write it: not split into tokens */
} set_lines_kind;

typedef struct set_lines {
    set_lines_kind kind;
    text_chain_options chain;
    atomic_int mended; /* lines with bytes that were not UTF-8, or zero: these become spaces, as by Perl and Moses */
} set_lines;

/* All of a line_map but where lines go; lines must stay as long as it is used. */
line_map set_lines_map(set_lines *lines, int threads);

#endif
