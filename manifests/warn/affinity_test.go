package warn_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestAffinityThatOneMachineCannotKeepIsWarnedOf: the field has no effect here, which matters only if there are pods that it is about.
func TestAffinityThatOneMachineCannotKeepIsWarnedOf(t *testing.T) {
	t.Parallel()
	affinity := func(kind, labels string) string {
		return ", affinity: {" + kind + ": {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {" + labels + "}}}]}}"
	}
	deployment := func(copies int, spec string) string { return fmt.Sprintf(head, "Deployment", copies, "", spec, "") }
	other := strings.Replace(aPod("other", "", ""), "{name: other}", "{name: other, labels: {x: one}}", 1)
	apart, without := "spec.template.spec.affinity.podAntiAffinity: pods that it keeps apart", "spec.template.spec.affinity.podAffinity: it starts without the pod"
	spread := func(copies int, more string) []string {
		return []string{deployment(copies, ", topologySpreadConstraints: [{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: "+more+", labelSelector: {matchLabels: {a: b}}}]")}
	}
	domain := "spec.template.spec.topologySpreadConstraints[0].minDomains: all its pods run on this machine"
	for _, c := range []struct {
		name string
		docs []string
		want string
	}{
		{"several that keep apart", []string{deployment(2, affinity("podAntiAffinity", "a: b"))}, apart},
		{"one that keeps apart", []string{deployment(1, affinity("podAntiAffinity", "a: b"))}, ""},
		{"one apart from another", []string{deployment(1, affinity("podAntiAffinity", "x: one")), other}, apart},
		{"apart from one that is not there", []string{deployment(2, affinity("podAntiAffinity", "x: two")), other}, ""},
		{"together with another", []string{deployment(1, affinity("podAffinity", "x: one")), other}, ""},
		{"together with one that is not there", []string{deployment(1, affinity("podAffinity", "x: two")), other}, without},
		{"together with one of another namespace", []string{deployment(1, affinity("podAffinity", "x: one")), strings.Replace(other, "{name: other,", "{name: other, namespace: far,", 1)}, without},
		{"more pods than one of several domains has", spread(3, "DoNotSchedule, minDomains: 2"), domain},
		{"as many pods as one of several domains has", spread(2, "DoNotSchedule, minDomains: 2"), ""},
		{"one domain", spread(3, "DoNotSchedule, minDomains: 1"), ""},
		{"any number of domains", spread(3, "DoNotSchedule"), ""},
	} {
		got := of(t, false, c.docs...)
		if c.want == "" && got != "" || c.want != "" && (strings.Count(got, "\n") != 1 || !strings.Contains(got, c.want)) {
			t.Errorf("%s: want %q, got\n%s", c.name, c.want, got)
		}
	}
}
