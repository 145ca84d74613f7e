package apiserver

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"

	"monopod/manifests"
	"monopod/node/apiserver/client"
)

// heap is what is in use, after a collection.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// TestAttackAnswersOfAServer: whatever a server answers, the pods stay. MONOPOD_ATTACK=1: and the memory for it is bounded.
func TestAttackAnswersOfAServer(t *testing.T) {
	pod := `{"metadata":{"name":"p","namespace":"default","uid":"1","annotations":{"kubernetes.io/config.mirror":"x","a":"` + strings.Repeat("y", 1000) + `"}},"status":{}},`
	huge := strings.Repeat("x", 1<<16)
	defer debug.SetGCPercent(debug.SetGCPercent(20)) // what is not in use any more does not count, also when a look comes late
	for name, answer := range map[string]http.HandlerFunc{
		"a million pods":        flood(`{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[`, pod, 1_000_000),
		"pages without end":     flood(`{"metadata":{"continue":"more","resourceVersion":"1"},"items":[`+strings.TrimSuffix(strings.Repeat(pod, 200), ",")+`]}`, "", 0),
		"one pod without end":   flood(`{"items":[{"metadata":{"name":"`, huge, 10_000),
		"garbage":               flood("", "garbage ", 1_000_000),
		"nothing":               func(http.ResponseWriter, *http.Request) {},
		"arrays in arrays":      flood("", "[", 10_000_000),
		"500 with a long story": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500); flood("", huge, 10_000)(w, r) },
		"401":                   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) },
		"headers": func(w http.ResponseWriter, _ *http.Request) {
			for i := range 1000 {
				w.Header().Set(fmt.Sprintf("X-%d", i), huge[:1000])
			}
		},
		"an event of spaces": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") == "" {
				_, _ = io.WriteString(w, `{"metadata":{"resourceVersion":"1"},"items":[]}`)
				return
			}
			flood(`{"type":"ADDED","object":`, strings.Repeat(" \n", 1<<15), 10_000)(w, r)
		},
		"events without end": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") == "" {
				_, _ = io.WriteString(w, `{"metadata":{"resourceVersion":"1"},"items":[]}`)
				return
			}
			for i := 0; r.Context().Err() == nil; i++ {
				if _, err := fmt.Fprintf(w, `{"type":"ADDED","object":{"metadata":{"name":"p%d","namespace":"default","uid":"1","resourceVersion":"%d"}}}`, i, i); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked := atomic.Int32{}
			pods := newBoard(running("web"))
			cfg := config(t, liar(t, func(w http.ResponseWriter, r *http.Request) { asked.Add(1); answer(w, r) }), pods)
			before := heap()
			stop := start(t, cfg)
			// One value of 2 MiB, twice while its buffer grows, for each of the two feeds, and what the server itself holds.
			most := uint64(0)
			eventually(t, "it asks and gets an answer", func() error {
				most = max(most, heap()) // also while it reads the first answers
				if n := asked.Load(); n < 4 {
					return fmt.Errorf("asked %d times", n)
				}
				return nil
			})
			most = max(most, heap())
			if grown := int64(most) - int64(before); os.Getenv("MONOPOD_ATTACK") != "" && grown > 24<<20 {
				t.Errorf("the heap has grown by %d MiB", grown>>20)
			}
			if got, complete := pods.Pods(); len(got) != 1 || !complete {
				t.Errorf("pods are %v", got)
			}
			stop()
		})
	}
}

func TestAServerThatIsNotTheRightOneIsNotBelieved(t *testing.T) {
	asked := atomic.Int32{}
	right := liar(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	target, err := client.ReadKubeconfig(right)
	if err != nil {
		t.Fatal(err)
	}
	pods := newBoard(running("web"))
	// Another authority: that of the machine.
	cfg := config(t, writeKubeconfig(t, "{server: '"+target.Host+"'}", "{token: secret}"), pods)
	stop := start(t, cfg)
	eventually(t, "it is said why", func() error {
		if why := pods.trouble(manifests.Key{}); !strings.Contains(why, "certificate signed by unknown authority") {
			return errors.New(why)
		}
		return nil
	})
	stop()
	if asked.Load() > 0 {
		t.Error("it got our token")
	}
}
