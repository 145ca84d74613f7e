package quantity_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/internal/fuzztest"
	"monopod/internal/quantity"
)

// hostile take minutes to parse, or for ever.
func hostile() []string {
	return []string{
		"1e-2147483648", "1E-2147483648", "+1e-2147483648", "-.1e-00002147483648", "1.e2147483647", "1e+2147483647", "1e-99999999", "1e100", "1e-0100",
		strings.Repeat("1", 100_000), "0." + strings.Repeat("0", 100_000) + "1", strings.Repeat("9", 100_000) + "Ki", " " + strings.Repeat("0", 100_000) + "1",
	}
}

func TestHostileQuantitiesAreRefusedAtOnce(t *testing.T) {
	for _, text := range hostile() {
		if _, err := quantity.Parse(text); err == nil || len(err.Error()) > 300 {
			t.Errorf("%.30s: %.300v", text, err)
		}
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		values := []string{string(quoted)}
		if json.Valid([]byte(text)) {
			values = append(values, text)
		}
		for _, v := range values {
			for _, manifest := range []string{
				`{"spec":{"containers":[{},{"resources":{"limits":{"cpu":` + v + `}}}]}}`,
				`{"spec":{"containers":[{"resources":{"limits":{"cpu":` + v + `,"cpu":"1"}}}]}}`, // both are decoded
				`{"spec":{"overhead":{"memory":` + v + `}}}`,
				`{"spec":{"volumes":[{"emptyDir":{"sizeLimit":` + v + `}}],"volumes":null}}`,
				`{"spec":{"containers":[{"env":[{"valueFrom":{"resourceFieldRef":{"divisor": ` + v + ` }}}]}]}}`,
			} {
				var pod corev1.Pod
				if err := quantity.Unmarshal([]byte(manifest), &pod); err == nil {
					t.Errorf("%.100s is decoded", manifest)
				}
				if _, err := quantity.UnmarshalStrict([]byte(manifest), &pod); err == nil {
					t.Errorf("%.100s is decoded strictly", manifest)
				}
			}
		}
	}
}

func TestOtherValuesMayBeAnything(t *testing.T) {
	for _, text := range hostile() {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var cm corev1.ConfigMap
		if err := quantity.Unmarshal([]byte(`{"data":{"cpu":`+string(quoted)+`}}`), &cm); err != nil || cm.Data["cpu"] != text {
			t.Errorf("%.30s: %v", text, err)
		}
		var pod corev1.Pod
		manifest := `{"metadata":{"annotations":{"limits":` + string(quoted) + `}},"spec":{"containers":[{"args":[` + string(quoted) + `],"env":[{"name":"A","value":` + string(quoted) + `}]}]}}`
		if strict, err := quantity.UnmarshalStrict([]byte(manifest), &pod); err != nil || len(strict) > 0 || pod.Spec.Containers[0].Env[0].Value != text {
			t.Errorf("%.30s: %v, %v", text, strict, err)
		}
		var value any
		if err := quantity.Unmarshal([]byte(`{"a":`+string(quoted)+`}`), &value); err != nil {
			t.Error(err)
		}
	}
}

func TestQuantitiesAreParsed(t *testing.T) {
	for _, text := range []string{"1", "100m", "1e3", "1E3", "12E", "1.5Gi", "1e-9", "1e+18", "0.000000001", "9223372036854775807", "1e-09", ".5", "-1"} {
		want := resource.MustParse(text)
		if got, err := quantity.Parse(text); err != nil || got.Cmp(want) != 0 {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		var l corev1.ResourceRequirements
		if err := quantity.Unmarshal([]byte(`{"limits":{"cpu":"`+text+`"}}`), &l); err != nil || l.Limits.Cpu().Cmp(want) != 0 {
			t.Errorf("%s: %v, %v", text, l, err)
		}
	}
	for _, text := range []string{"", "e", "1e", "x", "1eee100", "1e-", "1e5e100"} {
		if _, err := quantity.Parse(text); err == nil {
			t.Errorf("%q is a quantity", text)
		}
	}
}

func TestWhatIsNoJSONIsLeftToTheDecoder(t *testing.T) {
	deep := strings.Repeat("[", 20_000)
	for _, text := range []string{`{"spec":{"overhead":{"cpu":"1e-999`, `1e-999,`, deep + "1e-999", `{"spec":{"containers":[{1e-999`, `{"spec":1e-999}`} {
		if err := quantity.Unmarshal([]byte(text), &corev1.Pod{}); err == nil {
			t.Errorf("%.50s is decoded", text)
		}
	}
}

// FuzzUnmarshal: decoding is always fast.
func FuzzUnmarshal(f *testing.F) {
	for _, text := range hostile()[:9] {
		f.Add([]byte(`{"spec":{"overhead":{"cpu":"` + text + `"}}}`))
		f.Add([]byte(`{"spec":{"overhead":{"cpu":` + text + `}}}`))
	}
	f.Add([]byte(`{"spec":{"containers":[{"resources":{"limits":{"cpu":"1"}}}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		began := time.Now()
		_ = quantity.Unmarshal(data, &corev1.Pod{})
		fuzztest.Soon(t, began, time.Second)
	})
}
