/* Prints the attributes of a task's own node and of each rank of its job, and the values that each rank has put. */

#include "get.h"

/* Converts a value to a number by the type of its key. */
static uint32_t number(const pmix_proc_t *proc, const char *key)
{
    pmix_value_t *value = get(proc, key);
    uint32_t found = PMIX_UINT16 == value->type ? value->data.uint16 : value->data.uint32;

    PMIX_VALUE_RELEASE(value);
    return found;
}

int main(void)
{
    pmix_proc_t me, proc, *peers;
    pmix_value_t card, *value;
    size_t count;
    uint32_t size;

    setvbuf(stdout, NULL, _IOFBF, BUFSIZ);
    if (PMIX_SUCCESS != PMIx_Init(&me, NULL, 0)) {
        return 1;
    }
    PMIX_LOAD_PROCID(&proc, me.nspace, PMIX_RANK_WILDCARD);
    size = number(&proc, PMIX_JOB_SIZE);
    value = get(&proc, PMIX_LOCAL_PEERS);
    printf("%u: of %u on %u nodes; here %u: %s, first %u", me.rank, size,
           number(&proc, PMIX_NUM_NODES), number(&proc, PMIX_LOCAL_SIZE), value->data.string,
           number(&proc, PMIX_LOCALLDR));
    PMIX_VALUE_RELEASE(value);
    value = get(&me, PMIX_HOSTNAME);
    if (PMIX_SUCCESS != PMIx_Resolve_peers(value->data.string, me.nspace, &peers, &count)) {
        return 1;
    }
    printf("; %zu on %s, node %u, env %s\n", count, value->data.string, number(&me, PMIX_NODEID),
           getenv("PMIX_HOSTNAME"));
    PMIX_VALUE_RELEASE(value);
    PMIX_PROC_FREE(peers, count);
    card.type = PMIX_UINT32;
    card.data.uint32 = 100 + me.rank;
    PMIx_Put(PMIX_GLOBAL, "card", &card);
    PMIx_Commit();
    if (PMIX_SUCCESS != PMIx_Fence(&proc, 1, NULL, 0)) {
        return 1;
    }
    for (proc.rank = 0; proc.rank < size; proc.rank++) {
        value = get(&proc, PMIX_HOSTNAME);
        printf("%u: %u on %s, %u there, card %u\n", me.rank, proc.rank, value->data.string,
               number(&proc, PMIX_LOCAL_RANK), number(&proc, "card"));
        PMIX_VALUE_RELEASE(value);
    }
    return PMIX_SUCCESS == PMIx_Finalize(NULL, 0) ? 0 : 1;
}
