"""Vectors at positions, for experiments on the rotation: T positions, P pairs, D head size. Tensors of torch."""

import torch

import roformer_cpp


def largest(x):
    return x.abs().max().item()


def rotated(x, positions):
    """RoPE of x [T,..,D] at positions [T], by the program's operator; pairs are (2i, 2i+1)."""
    return roformer_cpp.rope(x.reshape(len(x), -1, x.shape[-1]), positions, layout="pairs").view(x.shape)


def sinusoid(positions, width):
    """What an added sinusoid (Vaswani et al. 2017) adds at positions [T]: float64 [T,width]."""
    return roformer_cpp.encoding("sinusoidal", head_dim=width).input(positions, dtype=torch.float64)[0]


def frequencies(dim, base=10000.0):
    """theta_i = base^(-2i/dim), float64 [dim/2]."""
    return base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
