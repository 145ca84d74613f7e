package plan_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/plan"
)

var update = flag.Bool("update", false, "rewrite the expected plans in testdata/scenarios")

const scenarios = "../../testdata/scenarios"

// zero is the base of all times of a scenario.
var zero = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// scenario is the file observed.yaml of a story. Times are durations since zero. made-for and recorded name another file of the story,
// without .yaml.
type scenario struct {
	Now        string             `json:"now"`
	NewUID     string             `json:"newUID"`
	Kept       bool               `json:"kept"`
	MaxBackOff string             `json:"maxBackOff"`
	Sandbox    *scenarioSandbox   `json:"sandbox"`
	Containers []scenarioInstance `json:"containers"`
	Failures   map[string]struct {
		Reason string `json:"reason"`
		Count  int    `json:"count"`
		At     string `json:"at"`
	} `json:"failures"`
	Prepared map[string]plan.Preparation `json:"prepared"`
	Killed   map[string]string           `json:"killed"`
	Stale    map[string]bool             `json:"stale"`
	Parallel int                         `json:"parallel"`
}

type scenarioSandbox struct {
	MadeFor  string `json:"made-for"`
	Recorded string `json:"recorded"`
	Dead     bool   `json:"dead"`
	Network  string `json:"network"`
	Age      string `json:"age"`
	Failed   string `json:"failed"`
}

type scenarioInstance struct {
	ID         string                `json:"id"`
	Name       string                `json:"name"`
	MadeFor    string                `json:"made-for"`
	OldSandbox bool                  `json:"old-sandbox"`
	State      runner.ContainerState `json:"state"`
	Started    string                `json:"started"`
	Restarts   int                   `json:"restarts"`
	BackOff    string                `json:"backoff"`
	StopSent   string                `json:"stop-sent"`
	Stopping   string                `json:"stopping"`
	Cause      runner.StopCause      `json:"cause"`
	Round      int                   `json:"round"`
	Exit       *struct {
		Code int    `json:"code"`
		At   string `json:"at"`
	} `json:"exit"`
	Recorded    bool `json:"recorded"`
	EarlierBoot bool `json:"earlier-boot"`
}

// story is a parsed scenario file.
type story struct {
	t         *testing.T
	manifests map[string]*manifests.Pod
	desired   *manifests.Pod
	now       time.Time
	observed  plan.Observed
}

func parseStory(t *testing.T, a *txtar.Archive) *story {
	t.Helper()
	s := &story{t: t, manifests: map[string]*manifests.Pod{}}
	var sc scenario
	for _, f := range a.Files {
		switch {
		case f.Name == "observed.yaml":
			if err := yaml.UnmarshalStrict(f.Data, &sc); err != nil {
				t.Fatalf("observed.yaml: %v", err)
			}
		case strings.HasSuffix(f.Name, ".yaml"):
			pods, err := decode.Pods("/m/web.yaml", f.Data, decode.Options{Source: "file"})
			if err != nil || len(pods) != 1 {
				t.Fatalf("%s: %d pods, %v", f.Name, len(pods), err)
			}
			s.manifests[strings.TrimSuffix(f.Name, ".yaml")] = pods[0]
		}
	}
	s.desired = s.manifests["desired"]
	s.now = s.at(or(sc.Now, "0s"))
	s.fill(sc)
	return s
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (s *story) at(d string) time.Time {
	s.t.Helper()
	if d == "" {
		return time.Time{}
	}
	return zero.Add(s.duration(d))
}

func (s *story) duration(d string) time.Duration {
	s.t.Helper()
	v, err := time.ParseDuration(or(d, "0s"))
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

func (s *story) manifest(name string) *manifests.Pod {
	s.t.Helper()
	p := s.manifests[or(name, "desired")]
	if p == nil {
		s.t.Fatalf("there is no file %s.yaml", or(name, "desired"))
	}
	return p
}

func (s *story) fill(sc scenario) {
	s.t.Helper()
	o := &s.observed
	o.NewUID, o.Kept, o.Prepared = or(sc.NewUID, "new-uid"), sc.Kept, sc.Prepared
	o.Options.MaxBackOff, o.Options.Parallel, o.Stale = s.duration(sc.MaxBackOff), sc.Parallel, sc.Stale
	o.Failures, o.Killed = map[string]plan.Failure{}, map[string]time.Time{}
	if sb := sc.Sandbox; sb != nil {
		made := s.manifest(sb.MadeFor)
		o.Sandbox = &runner.Sandbox{
			ID: "sandbox", UID: "uid", Hash: podhash.Sandbox(made.Object), Pod: s.manifest(or(sb.Recorded, sb.MadeFor)),
			Age: s.duration(sb.Age), CreatedAt: zero, Alive: !sb.Dead, Network: runner.NetworkState(or(sb.Network, "Ready")),
		}
	}
	if sb := sc.Sandbox; sb != nil && sb.Failed != "" {
		o.Sandbox.Failed = &runner.PodFailure{Reason: sb.Failed, At: s.now}
	}
	for _, i := range sc.Containers {
		o.Containers = append(o.Containers, s.instance(i))
	}
	for k, f := range sc.Failures {
		o.Failures[k] = plan.Failure{Reason: f.Reason, Message: "it failed", Count: f.Count, At: s.at(f.At)}
	}
	for id, at := range sc.Killed {
		o.Killed[id] = s.at(at)
	}
}

func (s *story) instance(i scenarioInstance) runner.Container {
	s.t.Helper()
	c := runner.Container{
		ID: i.ID, Name: i.Name, SandboxID: "sandbox", Image: "busybox", ImageID: "sha256:1", State: i.State,
		Hash: podhash.Container(s.manifest(i.MadeFor).Object, i.Name), RestartCount: i.Restarts,
		BackOff: s.duration(i.BackOff), CreatedAt: zero, Recorded: i.Recorded, StopSentAt: s.at(i.StopSent),
		StoppingAt: s.at(i.Stopping), StopCause: i.Cause, Round: i.Round, EarlierBoot: i.EarlierBoot,
	}
	if i.OldSandbox {
		c.SandboxID = "old-sandbox"
	}
	if i.State != runner.ContainerCreated {
		c.StartedAt = s.at(or(i.Started, "0s"))
	}
	if i.State == runner.ContainerExited {
		if i.Exit == nil {
			s.t.Fatalf("container %s has exited, but how?", i.ID)
		}
		reason := runner.ReasonError
		if i.Exit.Code == 0 {
			reason = runner.ReasonCompleted
		}
		c.Exit = &runner.Termination{ContainerID: i.ID, ExitCode: i.Exit.Code, Reason: reason, StartedAt: c.StartedAt, FinishedAt: s.at(i.Exit.At)}
	}
	return c
}

// printPlan formats a plan as in scenario files.
func printPlan(actions []runner.Action, next time.Time) string {
	var b strings.Builder
	for _, a := range actions {
		fmt.Fprintf(&b, "%s", a.Kind)
		for _, word := range []string{a.Container, a.ContainerID} {
			if word != "" {
				fmt.Fprintf(&b, " %s", word)
			}
		}
		if a.UID != "" {
			fmt.Fprintf(&b, " uid=%s", a.UID)
		}
		if a.KeepFiles {
			b.WriteString(" keep-files")
		}
		if a.RestartCount != 0 {
			fmt.Fprintf(&b, " restarts=%d", a.RestartCount)
		}
		if a.BackOff != 0 {
			fmt.Fprintf(&b, " backoff=%s", a.BackOff)
		}
		if a.Last != nil {
			fmt.Fprintf(&b, " last=%s:%d", a.Last.ContainerID, a.Last.ExitCode)
		}
		if a.Exit != nil {
			fmt.Fprintf(&b, " exit=%d", a.Exit.ExitCode)
		}
		if a.Timeout != 0 {
			fmt.Fprintf(&b, " timeout=%s", a.Timeout)
		}
		if a.Round != 0 {
			fmt.Fprintf(&b, " round=%d", a.Round)
		}
		if a.Failure != "" {
			fmt.Fprintf(&b, " failure=%s", a.Failure)
		}
		if a.Handler != nil {
			fmt.Fprintf(&b, " %s=%q", a.Hook, a.Handler.String())
		}
		if a.Manifest != runner.DesiredManifest {
			fmt.Fprintf(&b, " by=%s", a.Manifest)
		}
		if a.Reason != "" {
			fmt.Fprintf(&b, " (%s)", a.Reason)
		}
		b.WriteByte('\n')
	}
	if !next.IsZero() {
		fmt.Fprintf(&b, "next %s\n", next.Sub(zero))
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(scenarios, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(strings.TrimSpace(string(a.Comment))) == 0 {
				t.Error("a scenario begins with its story")
			}
			s := parseStory(t, a)
			got := printPlan(plan.Plan(s.now, s.desired, s.observed))
			if again := printPlan(plan.Plan(s.now, s.desired, s.observed)); again != got {
				t.Errorf("the second plan is another:\n%s", again)
			}
			if last := &a.Files[len(a.Files)-1]; last.Name != "plan" {
				t.Fatalf("the last file is %s, want plan", last.Name)
			} else if *update {
				last.Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(string(last.Data), got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlanDoesNotChangeItsInput(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(scenarios, "*.txtar"))
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, twin := parseStory(t, a), parseStory(t, a)
		plan.Plan(s.now, s.desired, s.observed)
		if !reflect.DeepEqual(s.observed, twin.observed) || !reflect.DeepEqual(s.desired, twin.desired) {
			t.Errorf("%s: changed", file)
		}
	}
}
