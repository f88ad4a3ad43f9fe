/* Rank 0 releases a node, which ends the tasks there; the remaining ones fence as many times as the argument says. */

#include <stdio.h>
#include <stdlib.h>

#include <pmix.h>

int main(int argc, char **argv)
{
    pmix_proc_t me, all;
    pmix_info_t info, *results = NULL;
    uint64_t nodes = 1;
    size_t count = 0;

    if (2 != argc || PMIX_SUCCESS != PMIx_Init(&me, NULL, 0)) {
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
    for (int n = 0; n < atoi(argv[1]); n++) {
        printf("%u fence: %d\n", me.rank, PMIx_Fence(&all, 1, NULL, 0));
    }
    return PMIX_SUCCESS == PMIx_Finalize(NULL, 0) ? 0 : 1;
}
