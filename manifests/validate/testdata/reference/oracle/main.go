// The program oracle reads names of files with JSON pods on its standard input and prints, one JSON object a line, what the
// API server of Kubernetes 1.37 makes of each: decoded strictly, defaulted, converted and validated by its own code.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	api "k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	v1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/capabilities"
)

type out struct {
	File    string
	Decode  string          `json:",omitempty"`
	Errors  []string        `json:",omitempty"`
	Default json.RawMessage `json:",omitempty"`
}

func main() {
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true})
	codecs := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)
	sc := bufio.NewScanner(os.Stdin)
	w := json.NewEncoder(os.Stdout)
	for sc.Scan() {
		data, err := os.ReadFile(sc.Text())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		o := out{File: sc.Text()}
		obj, _, err := codecs.UniversalDeserializer().Decode(bytes.TrimSpace(data), nil, nil)
		if err != nil {
			o.Decode = err.Error()
		}
		if obj != nil {
			if err := check(obj, &o); err != nil {
				o.Decode = err.Error()
			}
		}
		_ = w.Encode(o)
	}
}

func check(obj runtime.Object, o *out) error {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("not a pod: %T", obj)
	}
	v1.SetObjectDefaults_Pod(p)
	if p.Namespace == "" {
		p.Namespace = "default"
	}
	var in api.Pod
	if err := legacyscheme.Scheme.Convert(p, &in, nil); err != nil {
		return err
	}
	var back corev1.Pod
	if err := legacyscheme.Scheme.Convert(&in, &back, nil); err != nil {
		return err
	}
	back.TypeMeta = p.TypeMeta
	o.Default, _ = json.Marshal(&back)
	opts := podutil.GetValidationOptionsFromPodSpecAndMeta(&in.Spec, nil, &in.ObjectMeta, nil)
	opts.ResourceIsPod = true
	for _, e := range validation.ValidatePodCreate(&in, opts) {
		o.Errors = append(o.Errors, e.Error())
	}
	return nil
}
