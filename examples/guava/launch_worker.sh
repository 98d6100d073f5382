#!/bin/bash
# One worker of this machine for an orchestrator of another. MASTER_IP, MASTER_PORT and, where the
# orchestrator has printed one, GT_TOKEN say where it is; the first argument is the GPU.

export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-0,1} # GPUs to use
export MASTER_IP=${MASTER_IP:-192.168.1.100}
export MASTER_PORT=${MASTER_PORT:-29500}

exec python -m gt.guava.workers.network_worker \
    --gpu-id "${1:-0}" \
    --master-ip "$MASTER_IP" \
    --master-port "$MASTER_PORT"
