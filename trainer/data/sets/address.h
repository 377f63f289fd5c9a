/* address.h - addresses of servers as messages may show them: without passwords and tokens, which people put into them.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADDRESS_H
#define ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

/* An address without the name and password before its host, and without its query: stars stand for them. */
void address_shown(const char *url, char *out, size_t size);
/* A line of somebody else's, such as a library's, with all addresses in it shown so. */
void address_scrub(const char *line, char *out, size_t size);

bool address_has_password(const char *url); /* or what may be one */
bool address_is_file(const char *url);      /* of this machine */
bool address_is_plain(const char *url);     /* http, which anyone on the way can read and change */
bool address_is_secure(const char *url);    /* https */

#endif
