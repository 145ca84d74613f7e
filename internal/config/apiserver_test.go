package config

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/testfiles"
)

func TestValuesAboutTheAPIServerThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	testfiles.Write(t, filepath.Join(dir, "config.yaml"), `bootstrapKubeconfig: /x
registerWithTaints: [x, "x:Never", ":NoSchedule", "a=b:NoSchedule"]
nodeLeaseDurationSeconds: 0
nodeStatusUpdateFrequency: 10ms
eventBurst: 0
authentication: {webhook: {enabled: true}}
authorization: {mode: Webhook}
`)
	_, err := loadIn(dir, nil, nil)
	all, _ := errors.AsType[Problems](err)
	var keys []string
	for _, p := range all {
		keys = append(keys, p.Key)
	}
	want := "bootstrapKubeconfig registerWithTaints registerWithTaints registerWithTaints nodeLeaseDurationSeconds nodeStatusUpdateFrequency eventBurst authentication.webhook.enabled authorization.mode"
	if got := strings.Join(keys, " "); got != want {
		t.Errorf("%s\n%v", got, err)
	}
}
