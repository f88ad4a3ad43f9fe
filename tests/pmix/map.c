/* Prints a task's view of its job: the nodes, its peers, and the node of each rank. */

#include "get.h"

/* Puts a number for each task of this node, and gets the numbers of the others. */
static void exchange(const pmix_proc_t *me, const pmix_proc_t *job)
{
    pmix_value_t card = {.type = PMIX_UINT32, .data.uint32 = 100 + me->rank}, *value;
    pmix_proc_t here[2];
    pmix_info_t collect;
    bool yes = true;

    PMIX_LOAD_PROCID(&here[0], job->nspace, 0);
    PMIX_LOAD_PROCID(&here[1], job->nspace, 2);
    PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    PMIx_Put(PMIX_GLOBAL, "card", &card);
    PMIx_Commit();
    if (PMIX_SUCCESS != PMIx_Fence(here, 2, &collect, 1)) {
        exit(1);
    }
    for (int n = 0; n < 2; n++) {
        value = get(&here[n], "card");
        printf("card of %u: %u\n", here[n].rank, value->data.uint32);
        PMIX_VALUE_RELEASE(value);
    }
}

int main(void)
{
    pmix_proc_t me, proc;
    pmix_value_t *value, *place;
    char *nodes = NULL;
    uint32_t size;

    if (PMIX_SUCCESS != PMIx_Init(&me, NULL, 0)) {
        return 1;
    }
    PMIx_Resolve_nodes(me.nspace, &nodes);
    printf("nodes %s\n", nodes);
    free(nodes);
    PMIX_LOAD_PROCID(&proc, me.nspace, PMIX_RANK_WILDCARD);
    value = get(&proc, PMIX_LOCAL_PEERS);
    printf("peers %s\n", value->data.string);
    PMIX_VALUE_RELEASE(value);
    value = get(&proc, PMIX_JOB_SIZE);
    size = value->data.uint32;
    PMIX_VALUE_RELEASE(value);
    exchange(&me, &proc);
    for (proc.rank = 0; proc.rank < size; proc.rank++) {
        value = get(&proc, PMIX_HOSTNAME);
        place = get(&proc, PMIX_LOCAL_RANK);
        printf("%u %s %u\n", proc.rank, value->data.string, place->data.uint16);
        PMIX_VALUE_RELEASE(value);
        PMIX_VALUE_RELEASE(place);
    }
    return PMIX_SUCCESS == PMIx_Finalize(NULL, 0) ? 0 : 1;
}
