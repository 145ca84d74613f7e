package pull

import (
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
)

func TestPartialPullsAreResumableForADay(t *testing.T) {
	now := time.Now()
	labels := map[string]string{LabelPull: "a"}
	for name, c := range map[string]struct {
		lease leases.Lease
		want  bool
	}{
		"a recent pull":         {leases.Lease{CreatedAt: now.Add(-23 * time.Hour), Labels: labels}, true},
		"too old":               {leases.Lease{CreatedAt: now.Add(-25 * time.Hour), Labels: labels}, false},
		"a day in the future":   {leases.Lease{CreatedAt: now.Add(25 * time.Hour), Labels: labels}, false},
		"another lease":         {leases.Lease{CreatedAt: now}, false},
		"an hour in the future": {leases.Lease{CreatedAt: now.Add(time.Hour), Labels: labels}, true},
	} {
		if got := Resumable(c.lease, now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
