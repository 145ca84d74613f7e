package bandwidth

import (
	"encoding/json"
	"math"
	"testing"
)

// TestTheCapabilityOfCNI: plug-ins refuse a burst without a rate, and take both in bits.
func TestTheCapabilityOfCNI(t *testing.T) {
	for name, tt := range map[string]struct {
		limits Limits
		want   string
	}{
		"none":      {Limits{}, `{}`},
		"received":  {Limits{Ingress: 80_000_000}, `{"ingressRate":80000000,"ingressBurst":8000000}`},
		"sent":      {Limits{Egress: 160_000_000}, `{"egressRate":160000000,"egressBurst":16000000}`},
		"slow":      {Limits{Ingress: 1000}, `{"ingressRate":1000,"ingressBurst":524288}`},
		"each way":  {Limits{Ingress: 1000, Egress: 80_000_000}, `{"ingressRate":1000,"ingressBurst":524288,"egressRate":80000000,"egressBurst":8000000}`},
		"very fast": {Limits{Egress: math.MaxInt64}, `{"egressRate":9223372036854775807,"egressBurst":17179869176}`},
	} {
		got, err := json.Marshal(tt.limits.Entry())
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, tt.want)
		}
	}
}

func TestAPodWithoutALimitLacksNone(t *testing.T) {
	if !Applied("/no/such/namespace", Limits{}) {
		t.Error("a limit is missing that nobody wants")
	}
	if !Applied("/no/such/namespace", Limits{Ingress: 1000}) {
		t.Error("a namespace that cannot be read is taken for damage")
	}
	if err := Apply("/no/such/namespace", Limits{Ingress: 1000}); err == nil {
		t.Error("a limit was applied to nothing")
	}
}
