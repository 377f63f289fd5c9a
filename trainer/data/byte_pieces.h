/* byte_pieces.h - cuts text into the pieces within which byte-level BPE merges, as GPT-2's regular expression does:
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * Bytes that are not UTF-8 are cut like U+FFFD, by which other packages replace them: they are neither letters, numbers
 * nor spaces. */
#pragma once

#include "support/text.h"

/* Takes the next piece from the front of rest, which must not be empty. */
text_slice byte_pieces_next(text_slice *rest);
