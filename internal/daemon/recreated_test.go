package daemon

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/manifests/decode"
	"monopod/runner/runtimetest"
)

// TestAJobThatIsRemovedAndAddedAgainRuns, and one whose file cannot be read for a while does not: a Job has no uid in a file. Its pod succeeds at
// once, or takes long to stop.
func TestAJobThatIsRemovedAndAddedAgainRuns(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		// settles: the removal is carried out before the file is there again.
		unread, settles, again bool
	}{
		"completed":                        {script: runtimetest.ScriptSucceed, again: true},
		"completed, removed":               {script: runtimetest.ScriptSucceed, settles: true, again: true},
		"running":                          {script: runtimetest.ScriptStubborn, again: true},
		"running, being removed":           {script: runtimetest.ScriptStubborn, settles: true, again: true},
		"completed, file cannot be read":   {script: runtimetest.ScriptSucceed, unread: true},
		"completed, not read for a while":  {script: runtimetest.ScriptSucceed, unread: true, settles: true},
		"running, file not read for while": {script: runtimetest.ScriptStubborn, unread: true, settles: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c2 := newTestCore(t, runtimetest.NewFake())
				start(t, c2, &machineParts{})
				text := "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  backoffLimit: 0\n  template:\n    spec: {restartPolicy: Never, containers: [{name: c, image: i, command: [sh, -c, \"" + c.script + "\"]}]}\n"
				publish := func(present, unread bool) {
					d := model.Desired{Order: []string{config.SourceFile}, Reported: map[string]bool{config.SourceFile: true}}
					if present {
						content, err := decode.All("/m/j.yaml", []byte(text), decode.Options{Source: config.SourceFile})
						if err != nil {
							t.Fatal(err)
						}
						d.Workloads = content.Workloads
					}
					if unread {
						d.Unknown = map[string][]string{config.SourceFile: {"/m/j.yaml"}}
					}
					c2.state.Publish(d)
				}
				uid := func() types.UID {
					views, err := c2.state.Pods()
					if err != nil || len(views) != 1 {
						t.Fatalf("%d pods, %v", len(views), err)
					}
					return views[0].Pod.UID
				}
				publish(true, false)
				time.Sleep(10 * time.Second)
				before := uid()
				publish(false, c.unread)
				if c.settles {
					time.Sleep(3 * time.Second)
				}
				publish(true, false)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if again := uid() != before; again != c.again {
					t.Errorf("it has run again: %t", again)
				}
				progress, _ := c2.state.Workloads.Expanded()
				st := progress.Jobs["Job default/j"]
				if st == nil || st.Failed != 0 || (c.script == runtimetest.ScriptSucceed) != (st.Finished == "Complete") {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}
