"""Exact Word Mover's Distances of captions, and distances of sets of captions.

    W(c, c')  = min_f sum_ij f_ij |x_i - x_j|    f: exact transport between two normalised bags of words
    D(i, j)   = sum_{c in i} min_{c' in j} W(c, c') + sum_{c' in j} min_{c in i} W(c, c')

W: Kusner, Sun, Kolkin and Weinberger, From Word Embeddings To Document Distances, ICML 2015, equation 2. D: Kim, Seo,
Laptev, Cho and Kwak, Deep Metric Learning Beyond Binary Supervision, CVPR 2019, section 5.4.

    caption sets x, y               word vectors
          |                               |
          v                               v
    1. bags.py                      2. bags.py
       captions as counts of           Euclidean distances between words
       word numbers                       |
          |                               |
          +---------------+---------------+
                          | the cost block: distances from the words of x to the words of y
                          |
            on the CPU    |    on a GPU
          +---------------+---------------+
          |                               |
          v                               |
    3. bounds.py                          |
       lower bounds of W, and             |
       of D by their minima               |
          |                               |
          | pairs that may be a minimum   | all pairs
          v                               v
    4. solver_cpu.py                4. solver_gpu.py
       the exact transport             the same for one pair
       problem of one pair             per Triton program
          |                               |
          v                               v
    5. set_distance_cpu.py          5. set_distance_gpu.py
       minima, D, nearest sets         minima and D
          |                               |
          +---------------+---------------+
                          v
                    caption_distances.py: the functions below, which choose the device

Example: "two dogs run" and "a dog runs, a dog sleeps" are the bags {two, dogs, run} of weights 1/3 each, and
{dog, runs, sleeps} of weights 1/2, 1/4, 1/4. W is the least total distance over which the weights of one bag have to be
moved to become the other. Weights are scaled to whole numbers first, so the solvers round nothing. Between two images
of 5 captions each, D needs 10 minima of 25 distances W. Most pairs cannot be a minimum: their lower bound is above a
distance that is already known. On the CPU only about half of the W are solved. D is the same to the last bit.

The solver on the CPU is written in vector_operations.py, eight float64 at a time. Modules with functions compiled by
numba (bounds, solver_cpu, set_distance_cpu) are imported only when a distance is computed, and Triton only on a GPU.
"""

from contml.transport.caption_distances import (
    Match,
    caption_distance,
    set_distances,
    word_movers_distance,
    word_movers_plan,
)

__all__ = ["Match", "caption_distance", "set_distances", "word_movers_distance", "word_movers_plan"]
