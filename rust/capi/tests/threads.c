/* One set is read by several threads at once; each changes a copy of its own. */
#include <penstock.h>
#include <pthread.h>

#include "check.h"

#define THREADS 4

static const penstock_idset_t *shared;

static void *run(void *argument)
{
    uint32_t first = 100000u * (1 + *(uint32_t *)argument);
    penstock_idset_t *own = penstock_idset_copy(shared);
    for (uint32_t i = 0; i < 2000; i++) {
        CHECK(penstock_idset_contains(shared, 2 * (i % 1000)));
        CHECK(penstock_idset_add(own, first + 2 * i, first + 2 * i));
    }
    CHECK(penstock_idset_count(own) == penstock_idset_count(shared) + 2000);
    penstock_idset_free(own);
    return NULL;
}

int main(void)
{
    penstock_idset_t *set = penstock_idset_new();
    for (uint32_t i = 0; i < 1000; i++)
        CHECK(penstock_idset_add(set, 2 * i, 2 * i));
    shared = set;
    pthread_t threads[THREADS];
    uint32_t numbers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, run, &numbers[i]) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(penstock_idset_count(set) == 1000);
    penstock_idset_free(set);
    puts("passed");
    return 0;
}
