// Package units formats amounts of memory, bytes, time and CPU for humans.
//
// It must not depend on the types that the values come from. It has no goroutines.
package units

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/node/budget"
)

// Budget formats limits of monopod itself.
func Budget(l budget.Limits) string {
	memory, cpu := "all the memory", "all processors"
	if l.Memory > 0 {
		memory = Mebibytes(float64(l.Memory)) + " of memory"
	}
	if l.MilliCPU > 0 {
		cpu = fmt.Sprintf("%.2f processors", float64(l.MilliCPU)/1000)
	}
	return memory + " and " + cpu
}

// Ago formats how long ago t was. A time in the future counts as now, because the clock was probably wrong.
func Ago(t, now time.Time) string {
	if t.IsZero() || t.After(now.Add(time.Second)) {
		return "<unknown>"
	}
	return duration.HumanDuration(max(now.Sub(t), 0))
}

// Bytes formats a number of bytes.
func Bytes(n int64) string {
	const unit = 1000
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, at := float64(n), -1
	for v >= unit && at < 4 {
		v /= unit
		at++
	}
	return fmt.Sprintf("%.1f %cB", v, "kMGTP"[at])
}

// Progress formats the progress of an image pull.
func Progress(done, total int64) string {
	if total <= 0 {
		return "contacting the registry"
	}
	return fmt.Sprintf("%s of %s (%d%%)", Bytes(done), Bytes(total), done*100/total)
}

// Mebibytes formats a number of bytes in MiB.
func Mebibytes(n float64) string { return fmt.Sprintf("%.1f MiB", n/(1<<20)) }
