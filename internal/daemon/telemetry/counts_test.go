package telemetry

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/runner/podstatus"
)

func TestInputsAreCountedBySourceAndState(t *testing.T) {
	got := CountInputs([]model.Input{
		{Source: config.SourceFile, Input: "a", State: model.InputAccepted},
		{Source: config.SourceFile, Input: "b", State: model.InputAccepted},
		{Source: config.SourceFile, Input: "c", State: model.InputRefused},
		{Source: config.SourceHTTP, State: model.InputUnreachable},
	})
	want := map[[2]string]int{{config.SourceFile, "Accepted"}: 2, {config.SourceFile, "Refused"}: 1, {config.SourceHTTP, "Unreachable"}: 1}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestAProbeIsCountedOverAllInstancesOfItsContainer: a counter must not go back when a container is started again.
func TestAProbeIsCountedOverAllInstancesOfItsContainer(t *testing.T) {
	pod := func(name string, probes ...model.Probe) podstatus.Status {
		return podstatus.Status{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}, Probes: probes}
	}
	probe := func(container, kind string, good, bad, unknown uint64) model.Probe {
		c := model.ProbeCounts{Successful: good, Failed: bad, Unknown: unknown, Took: time.Duration(good) * time.Second}
		c.Buckets[7] = uint32(good)
		return model.Probe{Container: container, Kind: kind, Counts: c}
	}
	web := pod("web", probe("c", "Liveness", 5, 1, 0), probe("c", "Readiness", 1, 0, 0), probe("d", "Liveness", 1, 0, 0), probe("c", "Liveness", 2, 0, 3))
	other := pod("db", probe("c", "Liveness", 9, 0, 0))
	got := CountProbes([]podstatus.Status{web, {Pod: &corev1.Pod{}}, other})
	if len(got) != 4 {
		t.Fatalf("%d probes: %+v", len(got), got)
	}
	for i, want := range []struct {
		pod, container, kind       string
		good, bad, unknown, within uint64
	}{{"web", "c", "Liveness", 7, 1, 3, 7}, {"web", "c", "Readiness", 1, 0, 0, 1}, {"web", "d", "Liveness", 1, 0, 0, 1}, {"db", "c", "Liveness", 9, 0, 0, 9}} {
		p := got[i]
		if p.Namespace != "default" || p.Pod != want.pod || p.Container != want.container || p.Kind != want.kind {
			t.Errorf("%d: of %s/%s, %s %s", i, p.Namespace, p.Pod, p.Container, p.Kind)
		}
		if p.Successful != want.good || p.Failed != want.bad || p.Unknown != want.unknown || p.Buckets[7] != want.within || p.Took != time.Duration(want.good)*time.Second || p.Bounds[7] != 1 {
			t.Errorf("%d: %+v", i, p)
		}
	}
}
