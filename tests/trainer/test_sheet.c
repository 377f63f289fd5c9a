/* A table in each of its languages.
 *
 * SPDX-License-Identifier: MIT
 */
#include "core/platform.h" /* first */

#include "check.h"
#include "scratch.h"

#include "adamod.h"
#include "report/sheet.h"

#include <stdlib.h>

/* A writer's output; the same buffer each time. */
static const char *text_of(const sheet *s, int (*write)(const sheet *, FILE *)) {
    static char *text;
    size_t n = 0;
    free(text);
    FILE *out = open_memstream(&text, &n);
    CHECK_INT(write(s, out), 0);
    CHECK_INT(fclose(out), 0);
    return text;
}

static sheet *small(void) {
    sheet *s = sheet_create(3, 2, "Accuracy, in %");
    sheet_put(s, 0, 1, "test");
    sheet_put(s, 1, 0, "Adam");
    sheet_put(s, 1, 1, "%.2f (%.2f ± %.2f)", 94.2, 94.21, 0.05);
    sheet_put(s, 2, 0, "AdaMod");
    sheet_put(s, 2, 1, "94.4");
    sheet_bold(s, 2, 1);
    sheet_note(s, 2, 1, "%d of 3 seeds", 2);
    sheet_note(s, 1, 0, "without warm-up");
    sheet_note(s, 1, 1, "%d of 3 seeds", 2);
    sheet_note(s, 1, 1, "without warm-up");
    sheet_note(s, 1, 1, "without warm-up");
    return s;
}

TEST(languages) {
    sheet *s = small();
    CHECK_STR(text_of(s, sheet_csv), ",test\r\nAdam,94.20 (94.21 ± 0.05)\r\nAdaMod,94.4\r\n");
    CHECK_STR(text_of(s, sheet_markdown), "Accuracy, in %\n\n"
                                          "|  | test |\n"
                                          "|---|---:|\n"
                                          "| Adam<sup>2</sup> | 94.20 (94.21 ± 0.05)<sup>1,2</sup> |\n"
                                          "| AdaMod | **94.4**<sup>1</sup> |\n"
                                          "\n<sup>1</sup> 2 of 3 seeds\n"
                                          "\n<sup>2</sup> without warm-up\n");
    CHECK_STR(text_of(s, sheet_latex), "% in the preamble: \\usepackage{booktabs}\n"
                                       "\\begin{table}\n"
                                       "  \\centering\n"
                                       "  \\caption{Accuracy, in \\%}\n"
                                       "  \\begin{tabular}{lr}\n"
                                       "    \\toprule\n"
                                       "     & test \\\\\n"
                                       "    \\midrule\n"
                                       "    Adam$^{2}$ & 94.20 (94.21 $\\pm$ 0.05)$^{1,2}$ \\\\\n"
                                       "    AdaMod & \\textbf{94.4}$^{1}$ \\\\\n"
                                       "    \\bottomrule\n"
                                       "  \\end{tabular}\n"
                                       "  \\par\\footnotesize $^{1}$ 2 of 3 seeds\n"
                                       "  \\par\\footnotesize $^{2}$ without warm-up\n"
                                       "\\end{table}\n");
    const char *page = text_of(s, sheet_html);
    CHECK_HAS(page, "<th scope=\"col\">test</th>");
    CHECK_HAS(page, "<th scope=\"row\">Adam<sup>2</sup></th><td>94.20 (94.21 ± 0.05)<sup>1,2</sup></td>");
    CHECK_HAS(page, "<td><b>94.4</b><sup>1</sup></td>");
    CHECK_HAS(page, "<p class=\"legend\"><sup>2</sup> without warm-up</p>");
    sheet_free(s);
}

TEST(remarks) {
    sheet *s = sheet_create(2, 2, NULL);
    sheet_put_remark(s, 1, 1, "old", "gone");
    sheet_put_remark(s, 1, 1, "94.4 ± 0.1", "1 of 3 seeds; 50 % of it");
    sheet_bold(s, 1, 1);
    sheet_note(s, 1, 1, "Why.");
    CHECK_HAS(text_of(s, sheet_csv), ",94.4 ± 0.1; 1 of 3 seeds; 50 % of it\r\n");
    CHECK_HAS(text_of(s, sheet_markdown), "|  | **94.4 ± 0.1; 1 of 3 seeds; 50 % of it**<sup>1</sup> |\n");
    CHECK_HAS(text_of(s, sheet_latex),
              " & \\shortstack[r]{\\textbf{94.4 $\\pm$ 0.1}$^{1}$\\\\{\\scriptsize 1 of 3 seeds}"
              "\\\\{\\scriptsize 50 \\% of it}} \\\\\n");
    CHECK_HAS(text_of(s, sheet_html), "<td><b>94.4 ± 0.1</b><sup>1</sup>"
                                      "<small class=\"remark\">1 of 3 seeds; 50 % of it</small></td>");
    sheet_put(s, 1, 1, "94.4");
    CHECK_HAS(text_of(s, sheet_html), "<td><b>94.4</b><sup>1</sup></td>");
    sheet_free(s);
}

/* A cell in each language. */
static void check_cell(const char *text, const char *csv, const char *markdown, const char *latex, const char *html) {
    sheet *s = sheet_create(1, 1, NULL);
    char expected[400];
    sheet_put(s, 0, 0, "%s", text);
    snprintf(expected, sizeof expected, "%s\r\n", csv);
    CHECK_STR(text_of(s, sheet_csv), expected);
    snprintf(expected, sizeof expected, "| %s |\n", markdown);
    CHECK_HAS(text_of(s, sheet_markdown), expected);
    snprintf(expected, sizeof expected, "    %s \\\\\n", latex);
    CHECK_HAS(text_of(s, sheet_latex), expected);
    snprintf(expected, sizeof expected, ">%s</th>", html);
    CHECK_HAS(text_of(s, sheet_html), expected);
    sheet_free(s);
}

TEST(escapes) {
    check_cell("a, b", "\"a, b\"", "a, b", "a, b", "a, b");
    check_cell("say \"x\"", "\"say \"\"x\"\"\"", "say \"x\"", "say ''x''", "say &quot;x&quot;");
    check_cell("two\nlines", "\"two\nlines\"", "two lines", "two lines", "two\nlines");
    check_cell("a|b", "a|b", "a\\|b", "a\\textbar{}b", "a|b");
    check_cell("hold_out _x_ *y*", "hold_out _x_ *y*", "hold_out \\_x\\_ \\*y\\*", "hold\\_out \\_x\\_ {*}y{*}",
               "hold_out _x_ *y*");
    check_cell("&%$#_{}~^\\", "&%$#_{}~^\\", "&amp;%\\$\\#\\_{}\\~^\\\\",
               "\\&\\%\\$\\#\\_\\{\\}\\textasciitilde{}\\textasciicircum{}\\textbackslash{}", "&amp;%$#_{}~^\\");
    check_cell("[1] <b>", "[1] <b>", "\\[1\\] \\<b>", "{[}1{]} \\textless{}b\\textgreater{}", "[1] &lt;b&gt;");
    check_cell("β₃ α→η, 1–2", "\"β₃ α→η, 1–2\"", "β₃ α→η, 1–2", "$\\beta$$_3$ $\\alpha$$\\to$$\\eta$, 1--2",
               "β₃ α→η, 1–2");
    check_cell("p < 0.05", "p < 0.05", "p < 0.05", "p \\textless{} 0.05", "p &lt; 0.05");
    check_cell("-1.5", "-1.5", "-1.5", "$-$1.5", "-1.5");
    check_cell("--vary lr=1e-3", "--vary lr=1e-3", "--vary lr=1e-3", "-{}-vary lr=1e-3", "--vary lr=1e-3");
    check_cell("Zoë", "Zoë", "Zoë", "Zoë", "Zoë");
}

static void check_file(const char *name, const char *expected) {
    char text[2000] = "";
    text[get_file(name, text, sizeof text - 1)] = '\0';
    CHECK_STR(text, expected);
}

TEST(files) {
    enter_scratch(true);
    sheet *s = small(), *records = sheet_create(1, 2, NULL);
    sheet_put(records, 0, 0, "variant");
    sheet_put(records, 0, 1, "metric");
    CHECK_INT(sheet_save(s, records, "a/b", "results"), 0);
    check_file("a/b/results.csv", "variant,metric\r\n");
    check_file("a/b/results.md", text_of(s, sheet_markdown));
    check_file("a/b/results.tex", text_of(s, sheet_latex));
    CHECK_INT(sheet_save(s, NULL, "a/b", "results"), 0);
    check_file("a/b/results.csv", text_of(s, sheet_csv));
    put_file("file", "x", 1);
    CHECK(sheet_save(s, NULL, "file", "results") != 0);
    CHECK_STR(adamod_last_error(), "adamod: file: cannot make the directory: Not a directory");
    sheet_free(s);
    sheet_free(records);
    sheet_free(NULL);
}

TEST(a_full_disk_is_a_failure) {
    sheet *s = small();
    FILE *full = fopen("/dev/full", "w");
    if (!full) SKIP("there is no /dev/full");
    setvbuf(full, NULL, _IONBF, 0);
    CHECK(sheet_csv(s, full) != 0);
    CHECK_STR(adamod_last_error(), "adamod: a table: cannot write");
    fclose(full);
    sheet_free(s);
}

TEST(long_heads_are_broken_for_latex) {
    sheet *s = sheet_create(1, 3, "");
    sheet_put(s, 0, 0, "The name of a row is never broken");
    sheet_put(s, 0, 1, "Transformer-small on IWSLT'14 De-En (100 %% right)");
    sheet_put(s, 0, 2, "averyveryverylongwordofmanyletters");
    CHECK_HAS(text_of(s, sheet_latex), "    The name of a row is never broken & "
                                       "\\shortstack[r]{Transformer-small on\\\\IWSLT'14 De-En (100 \\%\\\\right)} & "
                                       "averyveryverylongwordofmanyletters \\\\\n");
    CHECK_HAS(text_of(s, sheet_markdown), "| Transformer-small on IWSLT'14 De-En (100 % right) |");
    sheet_free(s);
}

RUN_TESTS(ENTRY(long_heads_are_broken_for_latex), ENTRY(languages), ENTRY(remarks), ENTRY(escapes), ENTRY(files),
          ENTRY(a_full_disk_is_a_failure))
