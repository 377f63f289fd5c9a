/* Tests of src/data/sets without a server: the table, the cache, files of addresses, names in archives. tests/test_data.py
 * has the rest.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "scratch.h"

#include "data/sets/archive_file.h"
#include "data/sets/data_sets.h"
#include "data/sets/folders.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char msg[512];
#define MSG msg, sizeof msg

static void check_file(const data_set *s, const data_file *f) {
    CHECK(strlen(f->name) < sizeof((data_source *)0)->file && !strchr(f->name, '/'));
    CHECK(strncmp(f->url, "http", 4) == 0 && strlen(f->url) < DATA_SET_URL / 2);
    CHECK(f->size >= 0 && (f->unpacked == 0) == (f->members == NULL));
    if (f->checksum) {
        CHECK_INT(strlen(f->checksum), f->kind == DIGEST_MD5 ? 32 : 64);
        CHECK_INT(strspn(f->checksum, "0123456789abcdef"), strlen(f->checksum));
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
    CHECK_INT(data_set_folder(s, "downloads", path, sizeof path, MSG), 0);
    CHECK_STR(path, "/h/.cache/adamod/data/downloads/ptb");
    data_sources_default(path, sizeof path);
    CHECK_STR(path, "/h/.config/adamod/mirrors");
    setenv("XDG_CACHE_HOME", "not/absolute", 1);
    CHECK_INT(data_set_folder(s, "prepared", path, sizeof path, MSG), 0);
    CHECK_STR(path, "/h/.cache/adamod/data/prepared/ptb");
    setenv("XDG_CACHE_HOME", "/c", 1);
    CHECK_INT(data_set_folder(s, "prepared", path, sizeof path, MSG), 0);
    CHECK_STR(path, "/c/adamod/data/prepared/ptb");
    setenv("ADAMOD_DATA", home, 1);
    CHECK_INT(data_set_path(s, path, sizeof path, MSG), -1);
    CHECK_HAS(msg, "to fetch and prepare it: adamod data prepare ptb");
    CHECK_INT(folder_make("prepared/ptb", MSG), 0);
    CHECK_INT(data_set_path(s, path, sizeof path, MSG), 0);
    setenv("ADAMOD_DATA", "here", 1);
    CHECK_INT(data_set_folder(s, "prepared", path, sizeof path, MSG), -1);
    char longest[600];
    memset(longest, 'x', sizeof longest - 1);
    longest[0] = '/';
    longest[sizeof longest - 1] = 0;
    setenv("ADAMOD_DATA", longest, 1);
    CHECK_INT(data_set_folder(s, "prepared", path, sizeof path, MSG), -1);
    CHECK_HAS(msg, "too long");
    unsetenv("ADAMOD_DATA");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    CHECK_INT(data_set_folder(s, "prepared", path, sizeof path, MSG), -1);
}

TEST(addresses_are_read) {
    static const char text[] = "# a comment\n\nmirror https://m.example/data//\n"
                               "ptb ptb.train.txt http://x/y 12 md5:D41D8CD98F00B204E9800998ECF8427E\n"
                               "ptb ptb.test.txt\tfile:///z\n";
    data_sources s = {0};
    enter_scratch(true);
    put_file("m", text, sizeof text - 1);
    CHECK_INT(data_sources_read(&s, "absent", true, MSG), 0);
    CHECK_INT(data_sources_read(&s, "absent", false, MSG), -1);
    if (!CHECK_INT(data_sources_read(&s, "m", false, MSG), 0)) puts(msg);
    if (!CHECK_INT(s.n, 3)) return;
    CHECK_STR(s.list[0].url, "https://m.example/data");
    CHECK(s.list[1].has_size && s.list[1].size == 12 && s.list[1].kind == DIGEST_MD5);
    CHECK_STR(s.list[1].checksum, "d41d8cd98f00b204e9800998ecf8427e");
    CHECK(!s.list[2].has_size && !s.list[2].has_checksum);
    data_sources_free(&s);
}

TEST(names_that_lead_out_are_found) {
    CHECK(archive_name_fault("a") == NULL && archive_name_fault("./a/b..c/...") == NULL);
    const char *const bad[] = {"", "/a", "..", "a/../b", "../a", "a/..", "a\nb", "a\\b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK(archive_name_fault(bad[i]) != NULL);
    CHECK(archive_name_fault(NULL) != NULL);
}

TEST(folders_are_removed_without_following_links) {
    enter_scratch(true);
    CHECK_INT(folder_make("keep/a", MSG) || folder_make("gone/b/c", MSG), 0);
    put_file("keep/a/file", "x", 1);
    CHECK_INT(symlink("../../keep", "gone/b/link"), 0);
    CHECK_INT(folder_remove("gone", MSG), 0);
    CHECK_INT(access("gone", F_OK), -1);
    CHECK_INT(access("keep/a/file", F_OK), 0);
    CHECK_INT(folder_remove("gone", MSG), 0);
    CHECK_INT(folder_make("keep/a/file/x", MSG), -1);
    CHECK_INT(folder_make("keep/a/file", MSG), -1);
    CHECK_INT(folder_space(".", (int64_t)1 << 60, MSG), -1);
    CHECK_HAS(msg, "MB are free");
}

RUN_TESTS(ENTRY(the_table_is_whole), ENTRY(the_cache_is_where_xdg_says), ENTRY(addresses_are_read),
          ENTRY(names_that_lead_out_are_found), ENTRY(folders_are_removed_without_following_links))
