package telemetry

import (
	"monopod/internal/model"
	"monopod/node/metrics"
	"monopod/runner/podstatus"
)

// CountInputs returns the number of inputs by source and state.
func CountInputs(inputs []model.Input) map[[2]string]int {
	n := map[[2]string]int{}
	for _, in := range inputs {
		n[[2]string{in.Source, string(in.State)}]++
	}
	return n
}

// CountProbes returns the results of each probe, summed over the instances of its container.
func CountProbes(statuses []podstatus.Status) []metrics.ProbeTotals {
	type name struct{ uid, container, kind string }
	at := map[name]int{}
	var all []metrics.ProbeTotals
	for _, s := range statuses {
		for _, p := range s.Probes {
			key := name{string(s.Pod.UID), p.Container, p.Kind}
			i, listed := at[key]
			if !listed {
				i = len(all)
				at[key] = i
				bounds := model.ProbeBounds()
				all = append(all, metrics.ProbeTotals{
					Namespace: s.Pod.Namespace, Pod: s.Pod.Name, UID: key.uid, Container: key.container, Kind: key.kind,
					Bounds: bounds[:], Buckets: make([]uint64, len(bounds)),
				})
			}
			sum := &all[i]
			for j, n := range p.Counts.Buckets {
				sum.Buckets[j] += uint64(n)
			}
			sum.Took += p.Counts.Took
			sum.Successful += p.Counts.Successful
			sum.Failed += p.Counts.Failed
			sum.Unknown += p.Counts.Unknown
		}
	}
	return all
}
