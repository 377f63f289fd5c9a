/* Tests of trainer/data/sets without a server: the table, the cache, files of addresses, names in archives. tests/trainer/test_data.py
 * has the rest.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "scratch.h"

#include "data/sets/address.h"
#include "data/sets/archive_file.h"
#include "data/sets/data_sets.h"
#include "data/sets/folders.h"
#include "data/text_input.h"
#include "data/unpack.h"
#include "core/error.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void check_file(const data_set *s, const data_file *f) {
    CHECK(strlen(f->name) < sizeof((data_source *)0)->file && !strchr(f->name, '/'));
    CHECK(strncmp(f->url, "http", 4) == 0 && strlen(f->url) < DATA_SET_URL / 2);
    CHECK(f->size >= 0 && (f->unpacked == 0) == (f->members == NULL));
    CHECK(f->size > 0 || f->unpacked > 0);                     /* either limits what a server may send */
    CHECK(f->checksum || strncmp(f->url, "https://", 8) == 0); /* or anyone could change it */
    CHECK(!f->content ||
          (f->checksum && !f->members && f->size > 0)); /* content is compared where the packed file is not */
    const char *const sums[] = {f->checksum, f->content};
    for (int i = 0; i < 2; i++) {
        if (!sums[i]) continue;
        CHECK_INT(strlen(sums[i]), f->kind == DIGEST_MD5 ? 32 : 64);
        CHECK_INT(strspn(sums[i], "0123456789abcdef"), strlen(sums[i]));
    }
    for (int i = 0; f->members && f->members[i]; i++) CHECK(archive_name_fault(f->members[i]) == NULL);
    for (const data_file *other = s->files; other < f; other++) CHECK(strcmp(other->name, f->name) != 0);
}

/* Whether some archive of a set has this member. */
static bool has_member(const data_set *s, const char *name) {
    for (const data_file *f = s->files; f->name; f++) {
        for (int i = 0; f->members && f->members[i]; i++) {
            if (strcmp(f->members[i], name) == 0) return true;
        }
    }
    return false;
}

static void check_pairs(const data_set *s) {
    const data_pair *const lists[] = {s->pairs->train, s->pairs->test};
    for (int k = 0; k < 2; k++) {
        for (const data_pair *p = lists[k]; p->side[0]; p++)
            CHECK(has_member(s, p->side[0]) && has_member(s, p->side[1]));
    }
    for (int i = 0; i < 2; i++) CHECK_STR(s->pairs->sides[i].language, s->languages[i]);
    CHECK(s->pairs->hold_out > 1 && s->pairs->merges > 0 && s->pairs->limits.max > s->pairs->limits.min);
}

TEST(the_table_is_whole) {
    for (int i = 0; i < data_sets_n; i++) {
        const data_set *s = &data_sets[i];
        CHECK(data_set_find(s->name) == s);
        CHECK(strlen(s->name) < 16 && *s->about && *s->home && *s->licence); /* 16: what data.set has room for */
        for (const data_file *f = s->files; f->name; f++) check_file(s, f);
        for (const data_copy *c = s->copies; c && c->from; c++) {
            bool found = false;
            for (const data_file *f = s->files; f->name; f++) found = found || strcmp(f->name, c->from) == 0;
            CHECK(found);
        }
        if (s->pairs) check_pairs(s);
        for (const data_amount *a = s->amounts; a && a->file; a++) CHECK(has_member(s, a->file) && a->bytes > 0);
    }
    CHECK(data_set_find("nothing") == NULL);
}

TEST(the_cache_is_where_xdg_says) {
    const data_set *s = data_set_find("ptb");
    char path[DATA_SET_PATH], home[256];
    enter_scratch(true);
    if (!CHECK(getcwd(home, sizeof home) != NULL)) return;
    unsetenv("ADAMOD_DATA");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("XDG_CONFIG_HOME");
    setenv("HOME", "/h", 1);
    CHECK_INT(data_set_folder(s, "downloads", path, sizeof path), 0);
    CHECK_STR(path, "/h/.cache/adamod/data/downloads/ptb");
    data_sources_default(path, sizeof path);
    CHECK_STR(path, "/h/.config/adamod/mirrors");
    setenv("XDG_CACHE_HOME", "not/absolute", 1);
    CHECK_INT(data_set_folder(s, "prepared", path, sizeof path), 0);
    CHECK_STR(path, "/h/.cache/adamod/data/prepared/ptb");
    setenv("XDG_CACHE_HOME", "/c", 1);
    CHECK_INT(data_set_folder(s, "prepared", path, sizeof path), 0);
    CHECK_STR(path, "/c/adamod/data/prepared/ptb");
    setenv("ADAMOD_DATA", home, 1);
    CHECK_INT(data_set_path(s, path, sizeof path), ADAMOD_ERROR_IO);
    CHECK_HAS(adamod__last_message(), "to fetch and prepare it: adamod data prepare ptb");
    CHECK_INT(folder_make("prepared/ptb"), 0);
    CHECK_INT(data_set_path(s, path, sizeof path), 0);
    setenv("ADAMOD_DATA", "here", 1);
    CHECK_INT(data_set_folder(s, "prepared", path, sizeof path), -1);
    char longest[600];
    memset(longest, 'x', sizeof longest - 1);
    longest[0] = '/';
    longest[sizeof longest - 1] = 0;
    setenv("ADAMOD_DATA", longest, 1);
    CHECK_INT(data_set_folder(s, "prepared", path, sizeof path), -1);
    CHECK_HAS(adamod__last_message(), "too long");
    unsetenv("ADAMOD_DATA");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    CHECK_INT(data_set_folder(s, "prepared", path, sizeof path), -1);
}

TEST(addresses_are_read) {
    static const char text[] = "# a comment\n\nmirror https://m.example/data//\n"
                               "ptb ptb.train.txt http://x/y 12 md5:D41D8CD98F00B204E9800998ECF8427E\n"
                               "ptb ptb.test.txt\tfile:///z\n";
    data_sources s = {0};
    enter_scratch(true);
    put_file("m", text, sizeof text - 1);
    CHECK_INT(data_sources_read(&s, "absent", true), 0);
    CHECK_INT(data_sources_read(&s, "absent", false), -1);
    if (!CHECK_INT(data_sources_read(&s, "m", false), 0)) puts(adamod__last_message());
    if (!CHECK_INT(s.n, 3)) return;
    CHECK_STR(s.list[0].url, "https://m.example/data");
    CHECK(s.list[1].has_size && s.list[1].size == 12 && s.list[1].kind == DIGEST_MD5);
    CHECK_STR(s.list[1].checksum, "d41d8cd98f00b204e9800998ecf8427e");
    CHECK(!s.list[2].has_size && !s.list[2].has_checksum);
    data_sources_free(&s);
}

TEST(addresses_are_shown_without_secrets) {
    static const char *const cases[][2] = {
        {"https://host/a/b", "https://host/a/b"},
        {"https://name@host/a", "https://***@host/a"},
        {"https://name:word@host:80/a@b?key=1#x", "https://***@host:80/a@b?***"},
        {"http://name:wo@rd@host/a", "http://***@host/a"},
        {"http://name:wo/rd@host/a", "http://***@host/a"},
        {"http://name:wo?rd@host/a", "http://***@host/a"},
        {"http://host/a@b", "http://host/a@b"},
        {"http://host/?", "http://host/?***"},
        {"file:///a:b/c@d?e", "file:///a:b/c@d?e"},
        {"name:word@host", "***@host"},
        {"", ""},
    };
    char out[256], line[512], expected[512];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        address_shown(cases[i][0], out, sizeof out);
        CHECK_STR(out, cases[i][1]);
        CHECK(address_has_password(cases[i][0]) == (strchr(out, '@') && strstr(out, "***@")));
        snprintf(line, sizeof line, "cannot reach '%s' (or so)", cases[i][0]);
        snprintf(expected, sizeof expected, "cannot reach '%s' (or so)", cases[i][1]);
        address_scrub(line, out, sizeof out);
        CHECK_STR(out, expected);
    }
    address_scrub("a long line", out, 7);
    CHECK_STR(out, "a long");
    CHECK(address_is_plain("HTTP://x") && !address_is_plain("https://x") && address_is_secure("https://x"));
}

/* ---- files of a set that people have put into the cache themselves ---- */

static char notes[512];

static void take_note(void *context, const char *line) {
    (void)context;
    snprintf(notes + strlen(notes), sizeof notes - strlen(notes), "%s\n", line);
}

static const data_options quiet = {.note = take_note};

/* An address that gives nothing. */
#define NOWHERE "file:///nonexistent/file"

static void hex_of(digest_kind kind, const void *bytes, size_t n, char hex[DIGEST_HEX]) {
    digest d;
    digest_start(&d, kind);
    digest_add(&d, bytes, n);
    digest_end(&d, hex);
}

static void start_cache(void) {
    char here[256];
    enter_scratch(true);
    if (!CHECK(getcwd(here, sizeof here) != NULL)) return;
    setenv("ADAMOD_DATA", here, 1);
    CHECK_INT(folder_make("downloads/ptb"), 0);
    *notes = 0;
}

static bool is_prepared(const char *path, const char *text) {
    char *bytes, read[64] = "";
    size_t n;
    if (text_read(path, &bytes, &n)) return false;
    snprintf(read, sizeof read, "%.*s", (int)n, bytes);
    free(bytes);
    return strcmp(read, text) == 0;
}

TEST(a_text_that_was_packed_anew_is_known_by_its_content) {
    static const char text[] = "one\ntwo\n", other[] = "one\nsix\n";
    static const unsigned char packed[] = {0x1f, 0x8b, 8,    0,    0, 0, 0,    0,    2,    3,    0xcb, 0xcf, 0x4b, 0xe5,
                                           0x2a, 0x29, 0xcf, 0xe7, 2, 0, 0xe6, 0x0b, 0xba, 0x12, 8,    0,    0,    0};
    char of_text[DIGEST_HEX], of_file[DIGEST_HEX];
    hex_of(DIGEST_SHA256, text, sizeof text - 1, of_text);
    hex_of(DIGEST_SHA256, "as published", 12, of_file);
    const data_copy copies[] = {{"t.gz", "t", 0, 0}, {0}};
    const data_file published[] = {{"t.gz", NOWHERE, 12, DIGEST_SHA256, of_file, 0, NULL, of_text}, {0}};
    const data_file plain[] = {{"t.gz", NOWHERE, sizeof text - 1, DIGEST_SHA256, of_text, 0, NULL, NULL}, {0}};
    data_set s = {.name = "ptb", .files = published, .copies = copies};
    start_cache();
    put_file("downloads/ptb/t.gz", text, sizeof text - 1);
    if (!CHECK_INT(data_set_prepare(&s, &quiet), 0)) puts(adamod__last_message());
    CHECK_STR(notes, "t.gz: packed anew; what it unpacks to has the published SHA-256\n");
    CHECK(is_prepared("prepared/ptb/t", text));
    CHECK(access("downloads/ptb/t.gz.sha256", F_OK)); /* there is a published one */
    if (unpacker_knows("gzip")) {                     /* a plain text is known as well when it was packed */
        s.files = plain;
        start_cache();
        put_file("downloads/ptb/t.gz", packed, sizeof packed);
        if (!CHECK_INT(data_set_prepare(&s, &quiet), 0)) puts(adamod__last_message());
        CHECK(is_prepared("prepared/ptb/t", text));
    }
    s.files = published;
    start_cache();
    put_file("downloads/ptb/t.gz", other, sizeof other - 1);
    CHECK_INT(data_set_prepare(&s, &quiet), -1);
    CHECK_HAS(notes, "its SHA-256 is ");
    CHECK(access("downloads/ptb/t.gz.bad", F_OK) == 0 && access("downloads/ptb/t.gz", F_OK));
}

/* A tar archive of one file, unpacked. */
static size_t make_tar(unsigned char out[2048], const char *name, const char *text) {
    unsigned sum = 0;
    memset(out, 0, 2048);
    snprintf((char *)out, 100, "%s", name);
    memcpy(out + 100, "0000644", 7);
    snprintf((char *)out + 124, 12, "%011zo", strlen(text));
    memset(out + 148, ' ', 8);
    out[156] = '0';
    memcpy(out + 257,
           "ustar\0"
           "00",
           8);
    for (int i = 0; i < 512; i++) sum += out[i];
    snprintf((char *)out + 148, 7, "%06o", sum);
    memcpy(out + 512, text, strlen(text));
    return 2048;
}

TEST(an_archive_that_was_packed_anew_is_known_by_names_and_sizes) {
    static const char *const members[] = {"a/t", NULL};
    static const struct {
        const char *name, *text, *fault; /* "" if it is taken */
    } cases[] = {{"a/t", "12345", ""},
                 {"a/t", "1234", "a/t: 4 bytes, the published set has 5"},
                 {"a/u", "12345", "another name"}};
    const data_amount amounts[] = {{"a/t", 5}, {NULL, 0}};
    char hex[DIGEST_HEX];
    unsigned char bytes[2048];
    if (archive_missing()) return;
    hex_of(DIGEST_MD5, "as published", 12, hex);
    data_file files[] = {{"t.tgz", NOWHERE, 12, DIGEST_MD5, hex, 1 << 20, members, NULL}, {0}};
    const data_set s = {.name = "ptb", .files = files, .amounts = amounts};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t n = make_tar(bytes, cases[i].name, cases[i].text);
        const bool named = strcmp(cases[i].name, members[0]) == 0, right = !*cases[i].fault;
        start_cache();
        put_file("downloads/ptb/t.tgz", bytes, n);
        if (!CHECK_INT(data_set_prepare(&s, &quiet), right ? 0 : -1)) puts(adamod__last_message());
        if (named) CHECK_HAS(notes, "t.tgz: its MD5 is not the published one; in case it was packed anew");
        else CHECK_HAS(notes, "kept as t.tgz.bad");
        if (named && !right) CHECK_HAS(adamod__last_message(), cases[i].fault);
        CHECK(is_prepared("prepared/ptb/a/t", cases[i].text) == right);
    }
    /* As many bytes as the published one: not packed anew but damaged. */
    files[0].size = 2048;
    start_cache();
    put_file("downloads/ptb/t.tgz", bytes, make_tar(bytes, "a/t", "12345"));
    CHECK_INT(data_set_prepare(&s, &quiet), -1);
    CHECK_HAS(notes, "kept as t.tgz.bad");
    /* The user's word on a file counts, not what it might be. */
    data_source own = {.set = "ptb", .file = "t.tgz", .url = NOWHERE, .has_checksum = true, .kind = DIGEST_MD5};
    const data_options told = {.note = take_note, .sources = &(data_sources){&own, 1}};
    files[0].size = 12;
    snprintf(own.checksum, sizeof own.checksum, "%s", hex);
    start_cache();
    put_file("downloads/ptb/t.tgz", bytes, sizeof bytes);
    CHECK_INT(data_set_prepare(&s, &told), -1);
    CHECK_HAS(notes, "kept as t.tgz.bad");
}

/* ---- the record of a prepared set ---- */

/* How the set's folder is said to have come about, and why if it is not as published. */
static void check_origin(const data_set *s, data_origin_kind kind, const char *why) {
    data_origin o;
    adamod__fail(ADAMOD_ERROR_IO, "an earlier failure");
    data_set_origin(s, &o);
    CHECK_INT(o.kind, kind);
    CHECK_STR(o.why, why);
    CHECK_STR(adamod__last_message(), "an earlier failure"); /* only looks */
}

static void set_time(const char *path, time_t seconds) {
    const struct timespec times[2] = {{seconds, 5}, {seconds, 5}};
    CHECK_INT(utimensat(AT_FDCWD, path, times, 0), 0);
}

TEST(a_prepared_set_has_a_record) {
    static const char text[] = "one\ntwo\n", other[] = "one\nsix\n";
    char hex[DIGEST_HEX], line[256];
    hex_of(DIGEST_SHA256, text, sizeof text - 1, hex);
    const data_copy copies[] = {{"t", "t", 0, 0}, {0}};
    const data_file files[] = {{"t", NOWHERE, sizeof text - 1, DIGEST_SHA256, hex, 0, NULL, NULL}, {0}};
    const data_set s = {.name = "ptb", .files = files, .copies = copies};
    start_cache();
    check_origin(&s, DATA_UNRECORDED, "no record of how it was prepared");
    put_file("downloads/ptb/t", text, sizeof text - 1);
    if (!CHECK_INT(data_set_prepare(&s, &quiet), 0)) puts(adamod__last_message());
    check_origin(&s, DATA_AS_PUBLISHED, "");
    CHECK_INT(data_set_prepare(&s, &quiet), 0);
    CHECK_STR(notes, ""); /* there is nothing to say */
    snprintf(line, sizeof line,
             "{\"format\":1,\"set\":\"ptb\",\"sources\":[{\"file\":\"t\",\"proof\":\"checksum\",\"sha256\":\"%s\"}]",
             hex);
    char *record;
    size_t n;
    if (!CHECK_INT(text_read("prepared/ptb/origin.json", &record, &n), 0)) return;
    CHECK(n > strlen(line) && memcmp(record, line, strlen(line)) == 0);

    set_time("prepared/ptb/t", 1000); /* a copy without times: the content counts */
    check_origin(&s, DATA_AS_PUBLISHED, "");
    put_file("prepared/ptb/t", other, sizeof other - 1); /* as long as before */
    check_origin(&s, DATA_CHANGED, "t is not as it was prepared");
    CHECK_INT(data_set_prepare(&s, &quiet), 0);
    CHECK_HAS(notes,
              "ptb: t is not as it was prepared, so tables call these \"own files\"; adamod data prepare --again ptb");
    CHECK(is_prepared("prepared/ptb/t", other)); /* and nothing else */

    put_file("prepared/ptb/t", text, sizeof text - 1);
    check_origin(&s, DATA_AS_PUBLISHED, "");
    CHECK_INT(unlink("prepared/ptb/origin.json"), 0); /* as an earlier version left it */
    check_origin(&s, DATA_UNRECORDED, "no record of how it was prepared");
    *notes = 0;
    CHECK_INT(data_set_prepare(&s, &quiet), 0);
    CHECK_HAS(notes, "ptb: no record of how it was prepared, so tables call these \"own files\"");
    const data_options again = {.note = take_note, .again = true};
    CHECK_INT(data_set_prepare(&s, &again), 0);
    check_origin(&s, DATA_AS_PUBLISHED, "");

    for (size_t cut = 0; cut < n - 1; cut += 7) {
        put_file("prepared/ptb/origin.json", record, cut);
        check_origin(&s, DATA_UNRECORDED, "its origin.json cannot be read");
    }
    put_file("prepared/ptb/origin.json", "{}", 2);
    check_origin(&s, DATA_CHANGED, "t is not as it was prepared");
    free(record);
}

TEST(own_downloads_are_recorded_as_such) {
    static const char text[] = "one\ntwo\n";
    static const char *const members[] = {"a/t", NULL};
    unsigned char bytes[2048];
    char hex[DIGEST_HEX], of_text[DIGEST_HEX];
    hex_of(DIGEST_SHA256, "as published", 12, hex);
    hex_of(DIGEST_SHA256, text, sizeof text - 1, of_text);
    const data_copy copies[] = {{"t", "t", 0, 0}, {0}};
    const data_file files[] = {{"t", NOWHERE, 12, DIGEST_SHA256, hex, 0, NULL, NULL}, {0}};
    const data_file unpublished[] = {{"t", NOWHERE, 12, DIGEST_SHA256, NULL, 0, NULL, NULL}, {0}};
    const data_file archive[] = {{"t.tgz", NOWHERE, 12, DIGEST_SHA256, hex, 1 << 20, members, NULL}, {0}};
    data_source own = {.set = "ptb", .file = "t", .url = NOWHERE, .has_checksum = true, .kind = DIGEST_SHA256};
    const data_options told = {.note = take_note, .sources = &(data_sources){&own, 1}};
    data_set s = {.name = "ptb", .files = files, .copies = copies};
    /* the user's own checksum, then that nothing is known */
    for (int i = 0; i < 2; i++) {
        snprintf(own.checksum, sizeof own.checksum, "%s", i ? "" : of_text);
        start_cache();
        put_file("downloads/ptb/t", text, sizeof text - 1);
        if (!CHECK_INT(data_set_prepare(&s, &told), 0)) puts(adamod__last_message());
        check_origin(&s, DATA_OF_OWN_FILES, "prepared from a t that is not shown to be the published one");
    }
    /* the published checksum, given by the user */
    const data_file same[] = {{"t", NOWHERE, sizeof text - 1, DIGEST_SHA256, of_text, 0, NULL, NULL}, {0}};
    snprintf(own.checksum, sizeof own.checksum, "%s", of_text);
    s.files = same;
    start_cache();
    put_file("downloads/ptb/t", text, sizeof text - 1);
    CHECK_INT(data_set_prepare(&s, &told), 0);
    check_origin(&s, DATA_AS_PUBLISHED, "");
    /* none is published */
    s.files = unpublished;
    start_cache();
    put_file("downloads/ptb/t", text, sizeof text - 1);
    CHECK_INT(data_set_prepare(&s, &quiet), 0);
    check_origin(&s, DATA_AS_PUBLISHED, "");
    /* an archive of which only names and sizes fit */
    if (archive_missing()) return;
    s.files = archive;
    s.copies = NULL;
    start_cache();
    put_file("downloads/ptb/t.tgz", bytes, make_tar(bytes, "a/t", "12345"));
    if (!CHECK_INT(data_set_prepare(&s, &quiet), 0)) puts(adamod__last_message());
    check_origin(&s, DATA_OF_OWN_FILES, "prepared from a t.tgz that is not shown to be the published one");
}

TEST(names_that_lead_out_are_found) {
    CHECK(archive_name_fault("a") == NULL && archive_name_fault("./a/b..c/...") == NULL);
    const char *const bad[] = {"", "/a", "..", "a/../b", "../a", "a/..", "a\nb", "a\\b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK(archive_name_fault(bad[i]) != NULL);
    CHECK(archive_name_fault(NULL) != NULL);
}

TEST(folders_are_removed_without_following_links) {
    enter_scratch(true);
    CHECK_INT(folder_make("keep/a") || folder_make("gone/b/c"), 0);
    put_file("keep/a/file", "x", 1);
    CHECK_INT(symlink("../../keep", "gone/b/link"), 0);
    CHECK_INT(folder_remove("gone"), 0);
    CHECK_INT(access("gone", F_OK), -1);
    CHECK_INT(access("keep/a/file", F_OK), 0);
    CHECK_INT(folder_remove("gone"), 0);
    CHECK_INT(folder_make("keep/a/file/x"), ADAMOD_ERROR_IO);
    CHECK_INT(folder_make("keep/a/file"), ADAMOD_ERROR_IO);
    CHECK_INT(folder_space(".", (int64_t)1 << 60), -1);
    CHECK_HAS(adamod__last_message(), "MB are free");
}

RUN_TESTS(ENTRY(the_table_is_whole), ENTRY(the_cache_is_where_xdg_says), ENTRY(addresses_are_read),
          ENTRY(addresses_are_shown_without_secrets), ENTRY(a_text_that_was_packed_anew_is_known_by_its_content),
          ENTRY(an_archive_that_was_packed_anew_is_known_by_names_and_sizes), ENTRY(a_prepared_set_has_a_record),
          ENTRY(own_downloads_are_recorded_as_such), ENTRY(names_that_lead_out_are_found),
          ENTRY(folders_are_removed_without_following_links))
