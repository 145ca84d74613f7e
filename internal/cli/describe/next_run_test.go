package describe

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
)

func TestDescribeTellsTheNextRun(t *testing.T) {
	now := time.Date(2026, 2, 27, 12, 30, 0, 0, time.Local)
	yes, nowhere := true, "Nowhere/Land"
	for _, tt := range []struct {
		name string
		spec batchv1.CronJobSpec
		want string
	}{
		{"each hour", batchv1.CronJobSpec{Schedule: "0 * * * *"}, "2026-02-27 13:00 (in 30m)"},
		{"on the first of a month", batchv1.CronJobSpec{Schedule: "0 0 1 * *"}, "2026-03-01 00:00 (in 35h)"},
		{"suspended", batchv1.CronJobSpec{Schedule: "0 * * * *", Suspend: &yes}, "never, it is suspended"},
		{"on a day that never comes", batchv1.CronJobSpec{Schedule: "0 0 30 2 *"}, "never"},
		{"no schedule", batchv1.CronJobSpec{Schedule: "daily"}, "<invalid>"},
		{"a time zone in the schedule", batchv1.CronJobSpec{Schedule: "TZ=UTC 0 * * * *"}, "<invalid>"},
		{"an unknown time zone", batchv1.CronJobSpec{Schedule: "0 * * * *", TimeZone: &nowhere}, "<invalid>"},
	} {
		if got := nextRun(&batchv1.CronJob{Spec: tt.spec}, now); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
