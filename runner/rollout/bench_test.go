package rollout

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/boottime"
	"monopod/internal/model"
	"monopod/manifests"
)

// fleet returns n ordinary pods.
func fleet(n int) []*manifests.Pod {
	pods := make([]*manifests.Pod, n)
	for i := range pods {
		pods[i] = &manifests.Pod{
			Object: &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("pod-%d", i), Labels: map[string]string{"app": "a"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "c", Image: "example.com/app:1", Command: []string{"sh", "-c", "sleep 1"}, Env: []corev1.EnvVar{{Name: "A", Value: "b"}},
				}}},
			},
			Origin: manifests.Origin{Source: "file", File: fmt.Sprintf("/m/%d.yaml", i)},
		}
	}
	return pods
}

func controllerOf(pods []*manifests.Pod, hand func(model.Desired)) *Controller {
	began := time.Now()
	c := New(Config{Log: slog.New(slog.DiscardHandler), Clock: func() boottime.Moment {
		return boottime.Moment{Boot: "b", Since: time.Hour + time.Since(began), Wall: time.Now()}
	}})
	c.Update(model.Desired{Pods: pods}, hand)
	return c
}

// BenchmarkStart measures the time from desired to running pods, for unknown pods.
func BenchmarkStart(b *testing.B) {
	for _, n := range []int{1, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			pods := fleet(n)
			b.ReportAllocs()
			for b.Loop() {
				controllerOf(pods, func(model.Desired) {}).turn()
			}
		})
	}
}

// BenchmarkEdit measures one edit among pods that stay unchanged.
func BenchmarkEdit(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			pods := fleet(n)
			c := controllerOf(pods, func(model.Desired) {})
			c.turn()
			for _, p := range pods {
				c.Observe(p.Key(), &Observed{Recorded: p, Seen: Seen{Ready: true}})
			}
			c.turn()
			for i := 0; b.Loop(); i++ {
				p := *pods[i%n]
				p.Object = p.Object.DeepCopy()
				p.Object.Labels["edit"] = fmt.Sprint(i)
				pods[i%n] = &p
				c.Update(model.Desired{Pods: pods}, func(model.Desired) {})
				c.turn()
			}
		})
	}
}

// BenchmarkEditOfAll measures an edit of all pods at once; each is stored before it is handed out.
func BenchmarkEditOfAll(b *testing.B) {
	const n = 200
	pods := fleet(n)
	c := controllerOf(pods, func(model.Desired) {})
	c.cfg.Store = NewStore(b.TempDir())
	c.turn()
	c.flush()
	for i := 0; b.Loop(); i++ {
		for j, p := range pods {
			q := *p
			q.Object = q.Object.DeepCopy()
			q.Object.Labels["edit"] = fmt.Sprint(i)
			pods[j] = &q
		}
		c.Update(model.Desired{Pods: pods}, func(model.Desired) {})
		c.turn()
	}
}

// BenchmarkKept measures the memory of 1,000 pods of 2 KB that have been edited until the oldest revisions were dropped.
func BenchmarkKept(b *testing.B) {
	pods := fleet(1000)
	for _, p := range pods {
		for i := range 30 {
			env := corev1.EnvVar{Name: fmt.Sprint("SETTING_", i), Value: "value of " + p.Object.Name}
			p.Object.Spec.Containers[0].Env = append(p.Object.Spec.Containers[0].Env, env)
		}
	}
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		c := controllerOf(pods, func(model.Desired) {})
		for i := range Kept {
			edited := make([]*manifests.Pod, len(pods))
			for j, p := range pods {
				edited[j] = &manifests.Pod{Object: p.Object.DeepCopy(), Origin: p.Origin}
				edited[j].Object.Labels["edit"] = fmt.Sprint(i)
			}
			c.Update(model.Desired{Pods: edited}, func(model.Desired) {})
			c.turn()
		}
		c.Update(model.Desired{Pods: pods}, func(model.Desired) {})
		c.turn()
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1000, "B/pod")
		runtime.KeepAlive(c)
	}
}

// BenchmarkStatus measures one status change of one pod among many.
func BenchmarkStatus(b *testing.B) {
	pods := fleet(10000)
	c := controllerOf(pods, func(model.Desired) {})
	c.turn()
	o := Observed{Recorded: pods[7], Seen: Seen{Why: "it starts"}}
	for b.Loop() {
		c.Observe(pods[7].Key(), &o)
		c.turn()
	}
}

// BenchmarkLoad measures reading the states of 1,000 pods at startup.
func BenchmarkLoad(b *testing.B) {
	s := NewStore(b.TempDir())
	c := controllerOf(fleet(1000), func(model.Desired) {})
	c.turn()
	var entries []Entry
	for key, st := range c.States() {
		entries = append(entries, Entry{Key: key, State: st})
	}
	if _, err := s.Save(entries); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if all, err := s.Load(); err != nil || len(all) != 1000 {
			b.Fatal(err)
		}
	}
}
