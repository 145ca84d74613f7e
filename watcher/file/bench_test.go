package file

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/watcher"
	"monopod/watcher/watchertest"
)

func realLoad(file string, data []byte) (*manifests.Content, error) {
	return decode.All(file, data, decode.Options{Source: "file"})
}

func realPod(name string, revision int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  labels: {app: %s, revision: "%d"}
spec:
  hostNetwork: true
  containers:
  - name: main
    image: registry.example/app:%d
    command: [/app, --listen=:8080]
    env:
    - {name: A, value: b}
    resources:
      requests: {cpu: 100m, memory: 64Mi}
      limits: {memory: 128Mi}
    volumeMounts:
    - {name: data, mountPath: /data}
  volumes:
  - name: data
    hostPath: {path: /srv/%s, type: DirectoryOrCreate}
`, name, name, revision, revision, name)
}

// fill writes n manifests and waits until their times have settled.
func fill(b *testing.B, n int) string {
	b.Helper()
	dir := b.TempDir()
	for i := range n {
		name := fmt.Sprintf("pod-%05d", i)
		watchertest.Write(b, filepath.Join(dir, name+".yaml"), realPod(name, 0))
	}
	unseen(2 * tick)
	return dir
}

func BenchmarkColdRead(b *testing.B) {
	for _, n := range []int{30, 1000, 10000} {
		b.Run(fmt.Sprintf("files=%d", n), func(b *testing.B) {
			dir := fill(b, n)
			for b.Loop() {
				src := New(Config{Path: dir, Load: realLoad})
				set, _ := src.scanAll()
				src.stopListening()
				if len(set.Pods) != n {
					b.Fatalf("%d pods, %+v", len(set.Pods), set.Inputs[1])
				}
			}
		})
	}
}

// BenchmarkIdleLook is what the periodic read costs: once per fileCheckFrequency.
func BenchmarkIdleLook(b *testing.B) {
	for _, n := range []int{30, 1000, 10000} {
		b.Run(fmt.Sprintf("files=%d", n), func(b *testing.B) {
			src := New(Config{Path: fill(b, n), Load: realLoad})
			defer src.stopListening()
			src.scanAll()
			for b.Loop() {
				src.scanAll()
			}
		})
	}
}

// BenchmarkSeen measures from the return of the rename that puts a manifest there until its Set arrives.
func BenchmarkSeen(b *testing.B) {
	for _, n := range []int{0, 30, 1000, 10000} {
		b.Run(fmt.Sprintf("files=%d", n), func(b *testing.B) {
			dir := fill(b, n)
			path := filepath.Join(dir, "edited.yaml")
			watchertest.Write(b, path, realPod("edited", 0))
			loads := 0
			load := func(file string, data []byte) (*manifests.Content, error) { loads++; return realLoad(file, data) }
			s := standWith(b, Config{Path: dir, Load: load}, defaultGraces())
			s.Until("all", func(set watcher.Set) bool { return len(set.Pods) == n+1 })
			unseen(2 * tick)
			loads = 0
			var took []time.Duration
			i := 0
			for b.Loop() {
				i++
				revision := fmt.Sprint(i)
				tmp := filepath.Join(dir, ".edited")
				watchertest.Write(b, tmp, realPod("edited", i))
				start := time.Now()
				watchertest.Must(b, os.Rename(tmp, path))
				s.Until("the edit", func(set watcher.Set) bool {
					return slices.ContainsFunc(set.Pods, func(p *manifests.Pod) bool { return p.Object.Labels["revision"] == revision && revision != "0" })
				})
				took = append(took, time.Since(start))
				b.StopTimer()
				unseen(20 * time.Millisecond) // an edit by itself, not one in a burst
				b.StartTimer()
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs/median")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs/p99")
			if loads != i {
				b.Fatalf("%d files were parsed for %d edits", loads, i)
			}
		})
	}
}

// BenchmarkDrop measures the ways in which a manifest comes and goes, beside 30 others.
func BenchmarkDrop(b *testing.B) {
	ways := map[string]func(b *testing.B, path string){
		"in place": func(b *testing.B, path string) { b.Helper(); watchertest.Write(b, path, realPod("dropped", 1)) },
		"rename":   func(b *testing.B, path string) { b.Helper(); watchertest.Replace(b, path, realPod("dropped", 1)) },
	}
	for name, put := range ways {
		b.Run(name, func(b *testing.B) {
			dir := fill(b, 30)
			path := filepath.Join(dir, "dropped.yaml")
			s := watchertest.StartSource(b, New(Config{Path: dir, Load: realLoad}))
			s.Until("all", func(set watcher.Set) bool { return len(set.Pods) == 30 })
			var came, went []time.Duration
			for b.Loop() {
				b.StopTimer()
				unseen(20 * time.Millisecond)
				b.StartTimer()
				start := time.Now()
				put(b, path)
				s.Until("it came", func(set watcher.Set) bool { return len(set.Pods) == 31 })
				came = append(came, time.Since(start))
				unseen(20 * time.Millisecond)
				start = time.Now()
				watchertest.Must(b, os.Remove(path))
				s.Until("it went", func(set watcher.Set) bool { return len(set.Pods) == 30 })
				went = append(went, time.Since(start))
			}
			slices.Sort(came)
			slices.Sort(went)
			b.ReportMetric(float64(came[len(came)/2].Microseconds()), "µs/came")
			b.ReportMetric(float64(came[len(came)*95/100].Microseconds()), "µs/came-p95")
			b.ReportMetric(float64(went[len(went)/2].Microseconds()), "µs/went")
		})
	}
}
