/* The functions of flux/idset.h and flux/hostlist.h, as a program of Flux uses them. */
#include <errno.h>
#include <flux/hostlist.h>
#include <flux/idset.h>

#include "check.h"

static void test_idset(void)
{
    struct idset *ids = idset_create(0, IDSET_FLAG_AUTOGROW);
    CHECK(ids && idset_universe_size(ids) == 1024 && idset_empty(ids));
    CHECK(idset_set(ids, 3) == 0 && idset_range_set(ids, 9, 7) == 0 && idset_set(ids, 5000) == 0);
    CHECK(idset_universe_size(ids) == 8192 && idset_count(ids) == 5);
    CHECK(is_text(idset_encode(ids, IDSET_FLAG_RANGE | IDSET_FLAG_BRACKETS), "[3,7-9,5000]"));
    CHECK(is_text(idset_encode(ids, 0), "3,7,8,9,5000"));
    unsigned int sum = 0;
    for (unsigned int id = idset_first(ids); id != IDSET_INVALID_ID; id = idset_next(ids, id))
        sum += id;
    CHECK(sum == 5027 && idset_last(ids) == 5000 && idset_prev(ids, 7) == 3);
    struct idset *copy = idset_copy(ids);
    CHECK(idset_equal(ids, copy) && idset_clear_all(copy) == 0 && idset_empty(copy));
    idset_destroy(copy);
    idset_destroy(ids);

    static const char *const texts[] = {"1,", ",1", "[1,]", "[,1]", ",,1"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ids = idset_decode(texts[i]);
        CHECK(ids && is_text(idset_encode(ids, IDSET_FLAG_RANGE), "1"));
        idset_destroy(ids);
    }
    static const char *const invalid[] = {"2,1", "1 ", "1, 2", "[[1]]", "1]", "01", "4294967294"};
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++) {
        errno = 0;
        CHECK(!idset_decode(invalid[i]) && errno == EINVAL);
    }
    errno = 0;
    CHECK(!idset_decode("2147483648") && errno == ERANGE);
    errno = 0;
    CHECK(!idset_create(IDSET_MAX_UNIVERSE + 1, 0) && errno == ERANGE);
    idset_error_t error;
    CHECK(!idset_decode_ex("0-1", -1, 1, 0, &error));
    CHECK(strcmp(error.text, "id 1 is beyond the universe of 1") == 0);
    size_t count;
    unsigned int highest;
    CHECK(idset_decode_info("[1,4-6]x", 7, &count, &highest, NULL) == 0 && count == 4 && highest == 6);

    struct idset *free_ids = idset_create(2, IDSET_FLAG_INITFULL | IDSET_FLAG_AUTOGROW);
    unsigned int id;
    for (unsigned int i = 0; i < 5; i++)
        CHECK(idset_alloc(free_ids, &id) == 0 && id == i);
    idset_free(free_ids, 1);
    errno = 0;
    CHECK(idset_free_check(free_ids, 1) < 0 && errno == EEXIST);
    CHECK(idset_alloc(free_ids, &id) == 0 && id == 1);
    idset_destroy(free_ids);
}

static void test_hostlist_texts(void)
{
    static const char *const texts[][2] = {
        {"a b", "a,b"}, {" a", "a"}, {"a\t,, b,", "a,b"}, {"foo[1-3] bar", "foo[1-3],bar"},
        {"foo[1-03]", "foo[1-3]"}, {"foo[1, 3]", "foo1,foo03"}, {"foo[1- 3]", "foo[1-3]"}, {" ", ""},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct hostlist *hl = hostlist_decode(texts[i][0]);
        CHECK(hl && is_text(hostlist_encode(hl), texts[i][1]));
        hostlist_destroy(hl);
    }
    static const char *const invalid[] = {"foo[1,,3]", "foo[1,]", "foo[1 ]", "foo[]", "foo[3-1]", "foo]"};
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++) {
        errno = 0;
        CHECK(!hostlist_decode(invalid[i]) && errno == EINVAL);
    }
    struct hostlist *hl = hostlist_decode("foo[0-1048575],foo[0-5]");
    CHECK(hl && hostlist_count(hl) == 1048582);
    hostlist_destroy(hl);
}

static void test_hostlist(void)
{
    struct hostlist *hl = hostlist_decode("foo[0-3],bar,");
    CHECK(hl && hostlist_count(hl) == 5 && !hostlist_is_empty(hl));
    CHECK(strcmp(hostlist_nth(hl, 2), "foo2") == 0 && strcmp(hostlist_current(hl), "foo2") == 0);
    CHECK(strcmp(hostlist_next(hl), "foo3") == 0 && strcmp(hostlist_next(hl), "bar") == 0);
    CHECK(!hostlist_next(hl) && !hostlist_current(hl));
    CHECK(hostlist_find(hl, "foo1") == 1 && hostlist_remove_current(hl) == 1);
    CHECK(strcmp(hostlist_next(hl), "foo2") == 0);
    CHECK(hostlist_delete(hl, "foo[0,2]") == 2 && strcmp(hostlist_next(hl), "foo3") == 0);
    CHECK(hostlist_append(hl, "a[1-2]") == 2 && hostlist_append_list(hl, hl) == 4);
    hostlist_uniq(hl);
    CHECK(is_text(hostlist_encode(hl), "a[1-2],bar,foo3"));
    errno = 0;
    CHECK(hostlist_find(hl, "none") == -1 && errno == ENOENT);
    errno = 0;
    CHECK(!hostlist_decode("foo[1-") && errno == EINVAL);
    errno = 0;
    CHECK(!hostlist_decode("foo[0-1048576]") && errno == ERANGE);
    struct hostlist_hostname *name = hostlist_hostname_create("bar");
    CHECK(hostlist_find_hostname(hl, name) == 2 && strcmp(hostlist_current(hl), "bar") == 0);
    hostlist_hostname_destroy(name);
    hostlist_destroy(hl);
}

int main(void)
{
    test_idset();
    test_hostlist_texts();
    test_hostlist();
    puts("passed");
    return 0;
}
