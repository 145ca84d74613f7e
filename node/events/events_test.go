package events

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestWhatIsRecordedIsThereAfterARestart(t *testing.T) {
	m := newMachine(t)
	m.session(func(r *Recorder) {
		warn(r, "web", "Failed", "no such image")
		m.pass(time.Second)
		r.Event(NodeRef("edge"), corev1.EventTypeNormal, "Starting", "Starting monopod.")
		r.Event(InputRef("/etc/pods/a.yaml"), corev1.EventTypeWarning, "InputRefused", "line 3")
	})
	want := []string{"web Failed no such image x1", "edge Starting Starting monopod. x1", "/etc/pods/a.yaml InputRefused line 3 x1"}
	m.wants(m.onDisk(), want...)
	m.session(func(r *Recorder) { m.wants(r.List(Filter{}), want...) })
	e := m.onDisk()[0]
	if e.Kind != "Event" || e.APIVersion != "v1" || e.Name != "web.0000000000000001" || e.Namespace != "default" ||
		e.InvolvedObject != pod("web") || e.Type != "Warning" || e.Count != 1 || e.Source.Component != "monopod" ||
		!e.FirstTimestamp.Equal(&e.LastTimestamp) || e.Annotations[AnnotationBootID] != "boot-a" || e.Annotations[AnnotationSinceBoot] != "10s" {
		t.Errorf("event: %+v", e)
	}
	if got := m.onDisk()[2]; got.Name != "input.0000000000000003" || got.Namespace != "default" || got.InvolvedObject.Namespace != "" {
		t.Errorf("event of an input: %+v", got)
	}
}

func TestFilterSelectsByTheObject(t *testing.T) {
	m := newMachine(t)
	other := pod("web")
	other.Namespace = "other"
	m.session(func(r *Recorder) {
		warn(r, "web", "A", "")
		warn(r, "db", "B", "")
		r.Event(other, corev1.EventTypeNormal, "C", "")
		r.Event(NodeRef("web"), corev1.EventTypeNormal, "D", "")
		for f, want := range map[Filter]string{
			{}:                              "ABCD",
			{Kind: "Pod"}:                   "ABC",
			{Namespace: "default"}:          "AB",
			{Name: "web"}:                   "ACD",
			{Kind: "Pod", Name: "web"}:      "AC",
			{Kind: "Node"}:                  "D",
			{Namespace: "x", Kind: "Input"}: "",
		} {
			got := ""
			for _, e := range r.List(f) {
				got += e.Reason
			}
			if got != want {
				t.Errorf("%+v: %s, wanted %s", f, got, want)
			}
		}
	})
}

func TestARepetitionRaisesTheCountAndComesLast(t *testing.T) {
	m := newMachine(t)
	m.session(func(r *Recorder) {
		warn(r, "web", "BackOff", "again")
		m.pass(time.Second)
		warn(r, "db", "BackOff", "again")
		m.pass(time.Second)
		warn(r, "web", "BackOff", "again")
		warn(r, "web", "BackOff", "again")
		want := []string{"db BackOff again x1", "web BackOff again x3"}
		m.wants(r.List(Filter{}), want...)
		e := r.List(Filter{Name: "web"})[0]
		if took := e.LastTimestamp.Sub(e.FirstTimestamp.Time); took != 2*time.Second {
			t.Errorf("from %v to %v", e.FirstTimestamp, e.LastTimestamp)
		}
	})
	m.session(func(r *Recorder) { // another daemon of the same boot goes on counting
		warn(r, "web", "BackOff", "again")
		m.wants(r.List(Filter{}), "db BackOff again x1", "web BackOff again x4")
	})
	m.wants(m.onDisk(), "db BackOff again x1", "web BackOff again x4")
}

func TestTheOrderIsThatOfBootsAndOfTheTimeSinceThem(t *testing.T) {
	m := newMachine(t)
	m.session(func(r *Recorder) {
		warn(r, "web", "First", "in 2026")
		m.pass(time.Minute)
		m.setClock(time.Unix(0, 0)) // the clock falls back
		warn(r, "web", "Second", "in 1970")
		warn(r, "web", "First", "in 2026")
		m.wants(r.List(Filter{}), "web Second in 1970 x1", "web First in 2026 x2")
	})
	m.reboot("boot-b", time.Unix(5, 0))
	m.session(func(r *Recorder) {
		warn(r, "web", "First", "in 2026") // of another boot: not the same event
		m.wants(r.List(Filter{}), "web Second in 1970 x1", "web First in 2026 x2",
			"edge Rebooted Node edge has been rebooted, boot id: boot-b x1", "web First in 2026 x1")
	})
	m.reboot("boot-c", time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	m.session(func(r *Recorder) { warn(r, "web", "Third", "in 2020") })
	m.wants(m.onDisk(), "web Second in 1970 x1", "web First in 2026 x2",
		"edge Rebooted Node edge has been rebooted, boot id: boot-b x1", "web First in 2026 x1",
		"edge Rebooted Node edge has been rebooted, boot id: boot-c x1", "web Third in 2020 x1")
}

func TestAClockThatIsSetRightCorrectsWhatWasRecordedBefore(t *testing.T) {
	m := newMachine(t)
	m.reboot("boot-a", time.Unix(5, 0)) // no battery: the machine wakes up in 1970
	today := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	m.session(func(r *Recorder) {
		warn(r, "web", "Failed", "early")
		m.pass(time.Minute)
		m.setClock(today)
		if got := r.List(Filter{})[0].LastTimestamp.UTC(); !got.Equal(today.Add(-time.Minute)) {
			t.Errorf("shown at %v", got)
		}
		warn(r, "web", "Failed", "late")
	})
	if got := m.onDisk()[0].LastTimestamp.UTC(); !got.Equal(today.Add(-time.Minute)) {
		t.Errorf("shown at %v without a daemon", got)
	}
	m.reboot("boot-b", time.Unix(5, 0)) // 1970 again: what is known of the earlier boot stays
	if got := m.onDisk()[0].LastTimestamp.UTC(); !got.Equal(today.Add(-time.Minute)) {
		t.Errorf("shown at %v after a reboot", got)
	}
}

func TestAnUnknownBootIsEqualToNoOther(t *testing.T) {
	m := newMachine(t)
	m.reboot("", time.Unix(5, 0))
	for range 2 {
		m.session(func(r *Recorder) { warn(r, "web", "Failed", "x") })
	}
	m.wants(m.onDisk(), "web Failed x x1", "web Failed x x1")
}

func TestNewEventsAreWrittenTogetherAndCountsOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		r := m.start()
		defer func() { m.stop() }()
		wait := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		for i := range 5 {
			warn(r, "web", "Failed", fmt.Sprint(i))
		}
		wait(900 * time.Millisecond)
		if m.size(logFile) != 0 {
			t.Error("written at once")
		}
		wait(200 * time.Millisecond)
		m.wants(m.onDisk(), "web Failed 0 x1", "web Failed 1 x1", "web Failed 2 x1", "web Failed 3 x1", "web Failed 4 x1")
		before := m.size(logFile)
		for range 50 { // every second
			warn(r, "web", "Failed", "0")
			wait(time.Second)
		}
		if m.size(logFile) != before {
			t.Error("a count was written within a minute")
		}
		wait(11 * time.Second)
		if got := texts(m.onDisk())[4]; got != "web Failed 0 x51" {
			t.Errorf("after a minute: %s", got)
		}
		st, err := os.Stat(filepath.Join(m.dir, logFile))
		if err != nil {
			t.Fatal(err)
		}
		wait(24 * time.Hour)
		after, err := os.Stat(filepath.Join(m.dir, logFile))
		if err != nil || !after.ModTime().Equal(st.ModTime()) || after.Size() != st.Size() {
			t.Errorf("an idle day: %v, then %v (%v)", st, after, err)
		}
	})
}

func TestNothingIsWrittenWhileNothingHappens(t *testing.T) {
	m := newMachine(t)
	m.session(func(r *Recorder) { m.wants(r.List(Filter{})) })
	if _, err := os.Stat(m.dir); !os.IsNotExist(err) {
		t.Errorf("there is a directory: %v", err)
	}
	if all, err := Read(m.dir, Filter{}); err != nil || len(all) > 0 {
		t.Errorf("read: %v %v", all, err)
	}
}

func TestWhatComesBeforeTheRecordHasBeenReadIsKept(t *testing.T) {
	m := newMachine(t)
	m.session(func(r *Recorder) { warn(r, "web", "Failed", "old") })
	r := New(m.cfg)
	warn(r, "web", "Failed", "new")
	warn(r, "web", "Failed", "old")
	m.wants(r.List(Filter{}), "web Failed new x1", "web Failed old x2")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	m.wants(m.onDisk(), "web Failed new x1", "web Failed old x2")
}

func TestTheRecordIsBoundedAndKeepsTheNewest(t *testing.T) {
	m := newMachine(t)
	m.cfg.MaxFile = 20_000
	m.cfg.WriteAfter = time.Nanosecond
	r := m.start()
	const n = 400
	for i := range n {
		warn(r, fmt.Sprintf("pod-%03d", i), "Failed", "something went wrong with it")
		if i%7 == 0 {
			waitFor(t, "it is written", func() bool {
				all, err := Read(m.dir, Filter{Name: fmt.Sprintf("pod-%03d", i)})
				return err == nil && len(all) == 1
			})
		}
		for _, f := range []string{oldFile, logFile, newFile} {
			if s := m.size(f); s > m.cfg.MaxFile {
				t.Fatalf("%s has %d bytes", f, s)
			}
		}
	}
	inMemory := r.List(Filter{})
	m.stop()
	if len(inMemory) < 20 || len(inMemory) > 50 {
		t.Errorf("%d events in memory", len(inMemory))
	}
	disk := texts(m.onDisk())
	for i, text := range slices.Backward(texts(inMemory)) {
		if !slices.Contains(disk, text) {
			t.Errorf("%s (%d) is not on disk", text, i)
		}
	}
	if last := disk[len(disk)-1]; !strings.HasPrefix(last, "pod-399 ") {
		t.Errorf("the last is %s", last)
	}
	m.session(func(r *Recorder) {
		if got := texts(r.List(Filter{})); !strings.HasPrefix(got[len(got)-1], "pod-399 ") {
			t.Errorf("after a restart the last is %s", got[len(got)-1])
		}
	})
}

func TestOneNoisyPodDoesNotDriveOutTheOthers(t *testing.T) {
	noise := func(r *Recorder) {
		warn(r, "quiet", "Failed", "once")
		warn(r, "quiet", "Failed", "once")
		for i := range 12_000 {
			warn(r, "noisy", "Unhealthy", fmt.Sprintf("connect: port %d", i))
		}
	}
	check := func(t *testing.T, r *Recorder) {
		t.Helper()
		got := texts(r.List(Filter{}))
		if len(got) != 1+maxSimilar || got[0] != "quiet Failed once x2" || got[maxSimilar] != "noisy Unhealthy connect: port 11999 x1" {
			t.Errorf("kept: %q", got)
		}
	}
	t.Run("once the record has been read", func(t *testing.T) {
		newMachine(t).session(func(r *Recorder) {
			r.List(Filter{})
			noise(r)
			check(t, r)
		})
	})
	t.Run("before that", func(t *testing.T) {
		r := New(newMachine(t).cfg)
		noise(r)
		check(t, r)
	})
}

// TestOfEarlyEventsTheNewestStay has more come before the record was read than there is room for.
func TestOfEarlyEventsTheNewestStay(t *testing.T) {
	m := newMachine(t)
	m.cfg.MaxFile = 20_000
	r := New(m.cfg)
	for i := range 400 {
		warn(r, fmt.Sprintf("pod-%03d", i), "Failed", "something went wrong with it")
	}
	if r.early.used > r.early.limit {
		t.Errorf("%d bytes are kept", r.early.used)
	}
	got := texts(r.List(Filter{}))
	if len(got) < 20 || len(got) > 50 || !strings.HasPrefix(got[len(got)-1], "pod-399 ") {
		t.Errorf("kept: %q", got)
	}
}

func TestLongMessagesAreCutBetweenCharacters(t *testing.T) {
	m := newMachine(t)
	m.session(func(r *Recorder) {
		warn(r, "web", "Failed", strings.Repeat("é", 2000))
		warn(r, "web", "Broken", "a\xffb\nc <&>")
	})
	got := m.onDisk()
	if msg := got[0].Message; len(msg) > maxMessage || len(msg) < maxMessage-2 || !strings.HasSuffix(msg, "é ...") {
		t.Errorf("%d bytes, %q", len(msg), msg[len(msg)-8:])
	}
	if got[1].Message != "a?b\nc <&>" {
		t.Errorf("%q", got[1].Message)
	}
}

func TestSubscribersHearOfEachChange(t *testing.T) {
	m := newMachine(t)
	m.session(func(r *Recorder) {
		m.wants(r.List(Filter{}))
		changed, cancel := r.Subscribe()
		select {
		case <-changed: // the record was read
		default:
		}
		for _, message := range []string{"a", "a", "b"} {
			warn(r, "web", "Failed", message)
			select {
			case <-changed:
			default:
				t.Errorf("%s: not told", message)
			}
		}
		cancel()
		warn(r, "web", "Failed", "c")
		select {
		case <-changed:
			t.Error("told after the end")
		default:
		}
	})
}

func TestManyMayRecordAndAskAtOnce(t *testing.T) {
	m := newMachine(t)
	m.cfg.MaxFile, m.cfg.WriteAfter, m.cfg.CountAfter = 30_000, time.Microsecond, time.Microsecond
	m.session(func(r *Recorder) {
		r.List(Filter{})
		var g sync.WaitGroup
		for i := range 4 {
			g.Go(func() {
				for n := range 500 {
					warn(r, fmt.Sprint("pod-", i), "Failed", fmt.Sprint(n%3))
					if n%50 == 0 {
						r.List(Filter{})
						_, _ = Read(m.dir, Filter{})
					}
				}
			})
		}
		g.Wait()
	})
	total := int32(0)
	for _, e := range m.onDisk() {
		total += e.Count
	}
	if total != 2000 {
		t.Errorf("%d of 2000 are counted", total)
	}
}

// waitFor looks until a condition is true.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func BenchmarkEvent(b *testing.B) {
	r := New(Config{Dir: b.TempDir(), Node: "edge"})
	r.List(Filter{})
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			r.Event(pod(fmt.Sprint("pod-", i)), corev1.EventTypeNormal, "Started", "Container started")
		}
	})
	b.Run("repeated", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			r.Event(pod("web"), corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container web in pod web_default(uid)")
		}
	})
}

// BenchmarkRecord is what a full record costs: to write a batch of ten to disk, to list all, to read it at a start.
func BenchmarkRecord(b *testing.B) {
	dir := b.TempDir()
	r := New(Config{Dir: dir, Node: "edge"})
	r.load()
	for i := range 5000 {
		r.Event(pod(fmt.Sprint("pod-", i)), corev1.EventTypeWarning, "Failed", `Failed to pull image "registry.example.com/app:1": connection refused`)
	}
	r.write(true)
	n := 5000
	b.Run("write 10", func(b *testing.B) {
		for range b.N {
			for range 10 {
				n++
				r.Event(pod(fmt.Sprint("pod-", n)), corev1.EventTypeNormal, "Started", "Container started")
			}
			r.write(false)
		}
	})
	b.Run("list all", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			b.ReportMetric(float64(len(r.List(Filter{}))), "events")
		}
	})
	b.Run("list one pod", func(b *testing.B) {
		for range b.N {
			r.List(Filter{Kind: "Pod", Name: "pod-4999"})
		}
	})
	b.Run("read", func(b *testing.B) {
		for range b.N {
			if _, err := Read(dir, Filter{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
