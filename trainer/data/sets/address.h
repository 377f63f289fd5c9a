/* address.h - addresses of servers without the passwords and tokens that people put into them, for messages. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Writes an address with stars for its user name, password and query. */
void address_shown(const char *url, char *out, size_t size);
/* Does so for all addresses in a line, such as a library's message. */
void address_scrub(const char *line, char *out, size_t size);

bool address_has_password(const char *url); /* or what may be one */
bool address_is_file(const char *url);
bool address_is_plain(const char *url);  /* http */
bool address_is_secure(const char *url); /* https */
