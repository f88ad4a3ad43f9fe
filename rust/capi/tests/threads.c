/* Objects of each kind are read by several threads at once; each changes copies of its own. */
#include <penstock.h>
#include <pthread.h>

#include "check.h"

#define THREADS 4
#define HOSTS 1000u
#define ROUNDS 50u

/* The objects that the threads read. Nothing has read them before, so that an index is made by one of the threads. */
struct shared {
    const penstock_idset_t *set;
    const penstock_hostlist_t *list;
    const penstock_rset_t *r;
};

/* Threads begin each kind of object at once. */
static pthread_barrier_t barrier;
static struct shared shared;

static void use_set(uint32_t number)
{
    uint32_t first = 100000u * (1 + number);
    penstock_idset_t *own = penstock_idset_copy(shared.set);
    for (uint32_t i = 0; i < 2000; i++) {
        CHECK(penstock_idset_contains(shared.set, 2 * (i % 1000)));
        CHECK(penstock_idset_add(own, first + 2 * i, first + 2 * i));
    }
    CHECK(penstock_idset_count(own) == penstock_idset_count(shared.set) + 2000);
    penstock_idset_free(own);
}

/* The host at a position of the list; the names are not in order, so that `find` needs an index. */
static size_t name_of(uint32_t position, char *name, size_t size)
{
    return (size_t)snprintf(name, size, "n%u", (position * 7919u) % 10007u);
}

static void use_list(uint32_t number)
{
    penstock_error_t error;
    char name[32];
    penstock_hostlist_t *own = NULL;
    for (uint32_t i = 0; i < HOSTS; i++) {
        uint32_t position = (i + number * HOSTS / THREADS) % HOSTS;
        size_t len = name_of(position, name, sizeof name);
        CHECK(penstock_hostlist_find(shared.list, name, len) == position);
        CHECK(is_text(penstock_hostlist_nth(shared.list, position), name));
        if (i == HOSTS / 2)
            own = penstock_hostlist_copy(shared.list);
    }
    CHECK(penstock_hostlist_find(shared.list, "x", 1) == -1);
    size_t len = (size_t)snprintf(name, sizeof name, "own%u", number);
    CHECK(penstock_hostlist_append(own, name, len, &error));
    CHECK(penstock_hostlist_find(own, name, len) == HOSTS);
    CHECK(penstock_hostlist_sort(own, &error));
    CHECK(penstock_hostlist_count(own) == HOSTS + 1 && penstock_hostlist_count(shared.list) == HOSTS);
    penstock_hostlist_free(own);
}

static void use_r(uint32_t number)
{
    penstock_error_t error;
    char host[32];
    penstock_idset_t *ranks = penstock_idset_new();
    CHECK(penstock_idset_add(ranks, number, number + 9));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t rank = number + i % 10;
        size_t len = name_of(rank, host, sizeof host);
        penstock_hostlist_t *hosts = penstock_hostlist_parse(host, len, &error);
        penstock_idset_t *on = penstock_rset_ranks_on(shared.r, hosts);
        CHECK(penstock_idset_count(on) == 1 && penstock_idset_contains(on, rank));
        penstock_idset_free(on);
        penstock_hostlist_free(hosts);
        penstock_rset_t *part = penstock_rset_restrict(shared.r, ranks);
        penstock_rset_t *rest = penstock_rset_difference(shared.r, part, &error);
        penstock_rset_t *whole = penstock_rset_union(rest, part, &error);
        CHECK(penstock_rset_nnodes(part) == 10 && penstock_rset_nnodes(rest) == HOSTS - 10);
        CHECK(penstock_rset_equal(whole, shared.r));
        penstock_idset_t *cores = penstock_rset_cores(shared.r, rank);
        CHECK(penstock_idset_count(cores) == 8);
        penstock_idset_free(cores);
        penstock_rset_free(whole);
        penstock_rset_free(rest);
        penstock_rset_free(part);
    }
    char *text = penstock_rset_json(shared.r);
    penstock_rset_t *read = penstock_rset_parse(text, strlen(text), &error);
    CHECK(penstock_rset_equal(read, shared.r) && penstock_rset_ncores(read) == 8 * HOSTS);
    penstock_rset_free(read);
    free(text);
    penstock_idset_free(ranks);
}

static void *run(void *argument)
{
    uint32_t number = *(uint32_t *)argument;
    void (*const uses[])(uint32_t) = {use_set, use_list, use_r};
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        pthread_barrier_wait(&barrier);
        uses[i](number);
    }
    return NULL;
}

/* The names of all hosts, with a comma between two. */
static char *names(void)
{
    char *text = malloc(16u * HOSTS), *end = text;
    CHECK(text);
    for (uint32_t i = 0; i < HOSTS; i++) {
        if (i)
            *end++ = ',';
        end += name_of(i, end, 16);
    }
    return text;
}

int main(void)
{
    penstock_error_t error;
    char *hosts = names(), *document = malloc(16u * HOSTS + 300);
    CHECK(document);
    sprintf(document,
            "{\"version\":1,\"execution\":{\"R_lite\":[{\"rank\":\"0-%u\",\"children\":{\"core\":\"0-7\"}}],"
            "\"nodelist\":[\"%s\"],\"starttime\":0,\"expiration\":0}}",
            HOSTS - 1, hosts);
    penstock_idset_t *set = penstock_idset_new();
    for (uint32_t i = 0; i < 1000; i++)
        CHECK(penstock_idset_add(set, 2 * i, 2 * i));
    penstock_hostlist_t *list = penstock_hostlist_parse(hosts, strlen(hosts), &error);
    penstock_rset_t *r = penstock_rset_parse(document, strlen(document), &error);
    CHECK(list && r);
    shared = (struct shared){set, list, r};

    pthread_t threads[THREADS];
    uint32_t numbers[THREADS];
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, run, &numbers[i]) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    pthread_barrier_destroy(&barrier);
    CHECK(penstock_idset_count(set) == 1000);
    penstock_idset_free(set);
    penstock_hostlist_free(list);
    penstock_rset_free(r);
    free(document);
    free(hosts);
    puts("passed");
    return 0;
}
