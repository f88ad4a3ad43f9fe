/* The functions of penstock.h, as a program uses them. */
#include <penstock.h>

#include "check.h"

static penstock_idset_t *idset(const char *text)
{
    penstock_error_t error;
    penstock_idset_t *set = penstock_idset_parse(text, strlen(text), &error);
    CHECK(set);
    return set;
}

static penstock_hostlist_t *hostlist(const char *text)
{
    penstock_error_t error;
    penstock_hostlist_t *list = penstock_hostlist_parse(text, strlen(text), &error);
    CHECK(list);
    return list;
}

static void test_idset(void)
{
    penstock_error_t error;
    penstock_idset_t *set = idset("[0-3,7]");
    CHECK(is_text(penstock_idset_text(set), "0-3,7"));
    CHECK(penstock_idset_count(set) == 5);
    CHECK(penstock_idset_contains(set, 7) && !penstock_idset_contains(set, 4));
    CHECK(penstock_idset_first(set) == 0 && penstock_idset_last(set) == 7);
    CHECK(penstock_idset_next(set, 3) == 7 && penstock_idset_prev(set, 7) == 3);
    CHECK(penstock_idset_next(set, 7) == PENSTOCK_NO_ID && penstock_idset_prev(set, 0) == PENSTOCK_NO_ID);
    CHECK(penstock_idset_nth(set, 4) == 7 && penstock_idset_nth(set, 5) == PENSTOCK_NO_ID);

    uint64_t sum = 0;
    for (uint32_t id = penstock_idset_first(set); id != PENSTOCK_NO_ID; id = penstock_idset_next(set, id))
        sum += id;
    CHECK(sum == 13);

    penstock_idset_t *copy = penstock_idset_copy(set);
    CHECK(penstock_idset_add(copy, 10, 4294967294u) && penstock_idset_remove(copy, 0, 3));
    CHECK(is_text(penstock_idset_text(copy), "7,10-4294967294"));
    CHECK(!penstock_idset_add(copy, 5, 4) && !penstock_idset_add(copy, 0, PENSTOCK_NO_ID));
    CHECK(!penstock_idset_remove(copy, 5, 4));
    CHECK(!penstock_idset_equal(set, copy) && penstock_idset_intersects(set, copy));
    CHECK(is_text(penstock_idset_text(set), "0-3,7"));
    penstock_idset_free(copy);

    penstock_idset_t *other = idset("2-5"), *results[] = {
        penstock_idset_union(set, other),
        penstock_idset_intersection(set, other),
        penstock_idset_difference(set, other),
        penstock_idset_symmetric_difference(set, other),
    };
    const char *expected[] = {"0-5,7", "2-3", "0-1,7", "0-1,4-5,7"};
    for (int i = 0; i < 4; i++) {
        CHECK(is_text(penstock_idset_text(results[i]), expected[i]));
        penstock_idset_free(results[i]);
    }
    penstock_idset_t *part = idset("1,7");
    CHECK(penstock_idset_is_subset(part, set) && !penstock_idset_is_subset(set, part));
    penstock_idset_free(part);

    penstock_idset_t *taken = penstock_idset_take_first(set, 2, &error);
    CHECK(is_text(penstock_idset_text(taken), "0-1") && is_text(penstock_idset_text(set), "2-3,7"));
    CHECK(!penstock_idset_take_first(set, 4, &error));
    CHECK(strcmp(error.text, "4 ids requested, 3 are left") == 0);
    CHECK(penstock_idset_count(set) == 3);
    penstock_idset_free(taken);
    penstock_idset_free(other);
    penstock_idset_free(set);

    /* The text ends where its length says. */
    set = penstock_idset_parse("12,13", 2, &error);
    CHECK(is_text(penstock_idset_text(set), "12"));
    penstock_idset_free(set);

    CHECK(!penstock_idset_parse("1-3,x", 5, &error));
    CHECK(error.offset == 4 && strstr(error.text, "expected a number at byte 4"));
    CHECK(!penstock_idset_parse("1,\xff", 3, &error) && error.offset == 2);
    CHECK(!penstock_idset_parse(NULL, 0, &error) && strcmp(error.text, "expected a text, not NULL") == 0);
    CHECK(!penstock_idset_parse("x", 1, NULL));

    /* A long error is cut, and ends with a NUL. */
    char text[1000];
    memset(text, 'x', sizeof text);
    CHECK(!penstock_idset_parse(text, sizeof text, &error));
    CHECK(strlen(error.text) < sizeof error.text);
}

static void test_idset_null(void)
{
    CHECK(penstock_idset_count(NULL) == 0 && penstock_idset_first(NULL) == PENSTOCK_NO_ID);
    CHECK(is_text(penstock_idset_text(NULL), ""));
    CHECK(!penstock_idset_add(NULL, 0, 1) && !penstock_idset_remove(NULL, 0, 1));
    penstock_idset_t *set = penstock_idset_new();
    CHECK(penstock_idset_equal(set, NULL));
    penstock_idset_free(set);
    penstock_idset_free(NULL);
}

static void test_hostlist(void)
{
    penstock_error_t error;
    penstock_hostlist_t *list = hostlist("node[08-10],login");
    CHECK(penstock_hostlist_count(list) == 4);
    CHECK(is_text(penstock_hostlist_nth(list, 1), "node09") && !penstock_hostlist_nth(list, 4));
    CHECK(penstock_hostlist_find(list, "login", 5) == 3 && penstock_hostlist_find(list, "node8", 5) == -1);
    CHECK(penstock_hostlist_append(list, "a,node11", 8, &error));
    CHECK(is_text(penstock_hostlist_text(list), "node[08-10],login,a,node11"));
    CHECK(!penstock_hostlist_append(list, "b[1-", 4, &error) && error.offset == 4);
    CHECK(penstock_hostlist_remove(list, "node[09-10],x", 13, &error) == 2);
    CHECK(penstock_hostlist_sort(list, &error));
    CHECK(is_text(penstock_hostlist_text(list), "a,login,node[08,11]"));

    penstock_hostlist_t *other = hostlist("a,b,a"), *copy = penstock_hostlist_copy(other);
    penstock_hostlist_uniq(copy);
    CHECK(is_text(penstock_hostlist_text(copy), "a,b") && !penstock_hostlist_equal(copy, other));
    penstock_hostlist_t *results[] = {
        penstock_hostlist_union(list, other, &error),
        penstock_hostlist_intersection(list, other),
        penstock_hostlist_difference(list, other),
    };
    const char *expected[] = {"a,login,node[08,11],b", "a", "login,node[08,11]"};
    for (int i = 0; i < 3; i++) {
        CHECK(is_text(penstock_hostlist_text(results[i]), expected[i]));
        penstock_hostlist_free(results[i]);
    }
    penstock_hostlist_free(copy);
    penstock_hostlist_free(other);
    penstock_hostlist_free(list);

    CHECK(penstock_hostlist_count(NULL) == 0 && !penstock_hostlist_append(NULL, "a", 1, &error));
    list = penstock_hostlist_new();
    CHECK(penstock_hostlist_equal(list, NULL));
    penstock_hostlist_free(list);
}

static const char R[] = "{\"version\":1,\"execution\":{\"R_lite\":[{\"rank\":\"0-1\",\"children\":{\"core\":\"0-3\",\"gpu\":\"0\"}}],"
                        "\"nodelist\":[\"node[0-1]\"],\"starttime\":0,\"expiration\":0}}";

static void test_rset(void)
{
    penstock_error_t error;
    penstock_rset_t *r = penstock_rset_parse(R, strlen(R), &error);
    CHECK(r);
    CHECK(is_text(penstock_rset_summary(r), "rank[0-1]/core[0-3],gpu0"));
    CHECK(penstock_rset_nnodes(r) == 2 && penstock_rset_ncores(r) == 8 && penstock_rset_ngpus(r) == 2);

    penstock_idset_t *ranks = penstock_rset_ranks(r), *cores = penstock_rset_cores(r, 1), *gpus = penstock_rset_gpus(r, 9);
    CHECK(is_text(penstock_idset_text(ranks), "0-1") && is_text(penstock_idset_text(cores), "0-3"));
    CHECK(penstock_idset_count(gpus) == 0);
    penstock_idset_free(ranks);
    penstock_idset_free(cores);
    penstock_idset_free(gpus);

    penstock_hostlist_t *hosts = penstock_rset_hosts(r), *one = hostlist("node1");
    CHECK(is_text(penstock_hostlist_text(hosts), "node[0-1]"));
    ranks = penstock_rset_ranks_on(r, one);
    CHECK(is_text(penstock_idset_text(ranks), "1"));

    penstock_rset_t *part = penstock_rset_restrict(r, ranks), *rest = penstock_rset_difference(r, part, &error);
    CHECK(is_text(penstock_rset_summary(part), "rank1/core[0-3],gpu0"));
    CHECK(is_text(penstock_rset_summary(rest), "rank0/core[0-3],gpu0"));
    penstock_rset_t *all = penstock_rset_union(part, rest, &error), *none = penstock_rset_intersection(part, rest, &error);
    CHECK(penstock_rset_equal(all, r) && penstock_rset_nnodes(none) == 0);

    /* The text of an R is read as the same R. */
    char *text = penstock_rset_json(r);
    penstock_rset_t *copy = penstock_rset_copy(r), *again = penstock_rset_parse(text, strlen(text), &error);
    CHECK(penstock_rset_equal(again, copy));
    free(text);

    CHECK(!penstock_rset_parse("{\"version\":2}", 13, &error) && strstr(error.text, "version"));
    CHECK(!penstock_rset_json(NULL) && !penstock_rset_copy(NULL) && penstock_rset_ncores(NULL) == 0);
    penstock_rset_t *sets[] = {r, part, rest, all, none, copy, again, NULL};
    for (int i = 0; i < 8; i++)
        penstock_rset_free(sets[i]);
    penstock_idset_free(ranks);
    penstock_hostlist_free(hosts);
    penstock_hostlist_free(one);
}

int main(void)
{
    test_idset();
    test_idset_null();
    test_hostlist();
    test_rset();
    puts("passed");
    return 0;
}
