package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"monopod/internal/daemontest"
	"monopod/internal/program"
	"monopod/internal/trial"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// badCommand is a pod whose command is not in its image.
func badCommand() string {
	return strings.Replace(daemontest.PodYAML("badcmd", "x"), `[sh, -c, "x"]`, "["+runtimetest.MissingCommand+"]", 1)
}

// TestWhatIsNotUpInTimeIsExplained: the timeout is doubled while it is too short for the steps before the cause.
func TestWhatIsNotUpInTimeIsExplained(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text  string
		wants []string
	}{
		"a command that does not exist": {badCommand(), []string{"default/badcmd is not ready:", "because", runtimetest.MissingCommand, "web.yaml"}},
		"a registry that is not found":  {daemontest.PodYAML("pull", runtimetest.ScriptServe), []string{"default/pull is not ready:", "because", "no such host", "web.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRunBench(t)
			b.fail = func(key manifests.Key, a runner.Action) error {
				if key.Name == "pull" && a.Kind == runner.EnsureImage {
					return &runner.StepError{Reason: runner.ReasonErrImagePull, Err: errors.New("no such host")}
				}
				return nil
			}
			file := b.file("web.yaml", c.text)
			for limit := 300 * time.Millisecond; ; limit *= 2 {
				r := b.do("once", "--rm", "--max-restarts", "-1", "--timeout", limit.String(), "--junit", b.Path("junit.xml"), "--json", b.Path("report.json"), "-f", file)
				var report trial.Report
				if err := json.Unmarshal([]byte(b.readPath("report.json")), &report); err != nil || r.Code != program.ExitTimeout {
					t.Fatalf("code %d, %v: %s%s", r.Code, err, r.Stdout, r.Stderr)
				}
				junit := b.readPath("junit.xml")
				_, junit, _ = strings.Cut(junit, "<failure ")
				junit, _, _ = strings.Cut(junit, "</failure>")
				var missing []string
				for in, text := range map[string]string{"stderr": r.Stderr, "JUnit": junit, "JSON": strings.Join(report.Pods[0].Why, "\n")} {
					for _, want := range c.wants {
						if !strings.Contains(text, want) {
							missing = append(missing, fmt.Sprintf("no %q in %s:\n%s", want, in, text))
						}
					}
				}
				if len(missing) == 0 {
					break
				}
				if limit > daemontest.Patience {
					t.Fatal(strings.Join(missing, "\n"))
				}
			}
			b.nothingLeft()
		})
	}
}
