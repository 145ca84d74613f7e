package workload

import (
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/policy"
)

// Final returns the pods that a workload will finally have: those to wait for after an edit. It omits pods of Jobs and CronJobs, which come
// and go, and pods to which the update strategy does not apply edits.
func Final(o *manifests.Object) []*manifests.Pod {
	if o.Kind == "Job" || o.Kind == "CronJob" {
		return nil
	}
	made := map[string]*manifests.Pod{}
	in := Input{
		Workloads: []Workload{{Object: o.Object, Kind: o.Kind, Origin: o.Origin}},
		Pods:      map[manifests.Key]Current{},
		Make: func(w Workload, pod *corev1.Pod) (p *manifests.Pod, err error) {
			if made[pod.Name] == nil {
				if p, err = complete(w, pod); err != nil {
					return nil, err
				}
				made[pod.Name] = p
			}
			return made[pod.Name], nil
		},
	}
	for {
		out := Expand(in)
		if len(out.Pods) == len(in.Pods) {
			return slices.DeleteFunc(out.Pods, func(p *manifests.Pod) bool { return keptBack(o, p) })
		}
		for _, p := range out.Pods {
			in.Pods[p.Key()] = Current{Pod: p, Settled: true, Ready: true, Phase: corev1.PodRunning}
		}
	}
}

// keptBack reports whether edits do not reach a pod.
func keptBack(o *manifests.Object, p *manifests.Pod) bool {
	if d, ok := o.Object.(*appsv1.DaemonSet); ok {
		return d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	}
	s, ok := o.Object.(*appsv1.StatefulSet)
	if ok && s.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return true
	}
	if !ok || s.Spec.UpdateStrategy.RollingUpdate == nil || s.Spec.UpdateStrategy.RollingUpdate.Partition == nil {
		return false
	}
	var ordinal int32
	_, err := fmt.Sscan(p.Object.Labels[appsv1.PodIndexLabel], &ordinal)
	return err == nil && ordinal < *s.Spec.UpdateStrategy.RollingUpdate.Partition
}

// complete makes a pod of a workload as if it were a document of its own.
func complete(w Workload, pod *corev1.Pod) (*manifests.Pod, error) {
	b, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	// The policy of the node was checked with the workload: only its source knows it.
	pods, err := decode.Pods(w.Origin.File, b, decode.Options{
		Source: w.Origin.Source, Policy: policy.Policy{AllowedUnsafeSysctls: []string{"*"}}, Author: decode.AuthorWorkload,
	})
	if err != nil {
		return nil, err
	}
	if len(pods) != 1 {
		return nil, fmt.Errorf("created %d pods", len(pods))
	}
	pods[0].Origin = w.Origin
	return pods[0], nil
}
