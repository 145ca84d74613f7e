package workload

import "testing"

// Jobs that never end, of a CronJob with concurrent runs, must not exhaust the machine.
func TestRunsOfACronJobThatNeverEndAreLimited(t *testing.T) {
	w := newWorld(t, cronJob("  concurrencyPolicy: Allow\n"))
	w.settle()
	for i := range maxActiveRuns + 3 {
		w.at(12+i/12, 5*(i%12)+5)
	}
	w.wantRuns(maxActiveRuns, 0)
	if len(w.x.logged) == 0 {
		t.Error("nothing says that runs are skipped")
	}
	w.endAll("Succeeded")
	w.wantRuns(0, 3)
	w.at(23, 55)
	w.wantRuns(1, 3)
}
