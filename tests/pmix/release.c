/* Rank 0 releases a node, which ends the tasks there. The tasks with the lowest ranks, whose number is the second
   argument, fence as many times as the first one says; the others wait for their end. */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <pmix.h>

int main(int argc, char **argv)
{
    pmix_proc_t me, all;
    pmix_info_t info, *results = NULL;
    uint64_t nodes = 1;
    size_t count = 0;

    if (3 != argc || PMIX_SUCCESS != PMIx_Init(&me, NULL, 0)) {
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
    if (PMIX_SUCCESS != PMIx_Fence(&all, 1, NULL, 0)) {
        return 1;
    }
    if (0 == me.rank) {
        PMIX_INFO_LOAD(&info, PMIX_ALLOC_NUM_NODES, &nodes, PMIX_UINT64);
        printf("release: %d\n",
               PMIx_Allocation_request(PMIX_ALLOC_RELEASE, &info, 1, &results, &count));
        if (0 < count) {
            PMIX_INFO_FREE(results, count);
        }
    }
    while (me.rank >= (pmix_rank_t) atoi(argv[2])) {
        pause();
    }
    for (int n = 0; n < atoi(argv[1]); n++) {
        printf("%u fence: %d\n", me.rank, PMIx_Fence(&all, 1, NULL, 0));
    }
    return PMIX_SUCCESS == PMIx_Finalize(NULL, 0) ? 0 : 1;
}
