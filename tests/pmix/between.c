/* Two fences, and a request for resources.
 *
 *     between GATE
 *
 * Between the fences, a rank opens the FIFO GATE.RANK and reads to its end. After them, rank 0 requests a node, and
 * then a thousand.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <pmix.h>

static pmix_proc_t me;

static void fence(void)
{
    pmix_proc_t all;

    PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
    printf("rank %u: fence: %d\n", me.rank, PMIx_Fence(&all, 1, NULL, 0));
}

static void request(uint64_t nodes)
{
    pmix_info_t *infos, *results = NULL;
    size_t count = 0;
    pmix_status_t status;

    PMIX_INFO_CREATE(infos, 2);
    PMIX_INFO_LOAD(&infos[0], PMIX_ALLOC_NUM_NODES, &nodes, PMIX_UINT64);
    PMIX_INFO_LOAD(&infos[1], PMIX_ALLOC_REQ_ID, "BETWEEN", PMIX_STRING);
    PMIX_INFO_REQUIRED(&infos[0]);
    status = PMIx_Allocation_request(PMIX_ALLOC_NEW, infos, 2, &results, &count);
    printf("rank %u: %llu nodes: %d\n", me.rank, (unsigned long long)nodes, status);
    PMIX_INFO_FREE(infos, 2);
    PMIX_INFO_FREE(results, count);
}

int main(int argc, char **argv)
{
    char path[4096], byte;
    int gate;

    if (2 != argc || PMIX_SUCCESS != PMIx_Init(&me, NULL, 0)) {
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    fence();
    snprintf(path, sizeof(path), "%s.%u", argv[1], me.rank);
    gate = open(path, O_RDONLY);
    if (gate < 0 || 0 != read(gate, &byte, 1)) {
        return 1;
    }
    fence();
    if (0 == me.rank) {
        request(1);
        request(1000);
    }
    return PMIX_SUCCESS == PMIx_Finalize(NULL, 0) ? 0 : 1;
}
