package config

import (
	"fmt"
	"net"
)

// Tracing configures where traces of pod starts are sent.
type Tracing struct {
	Endpoint               string `koanf:"endpoint"`
	SamplingRatePerMillion int    `koanf:"samplingRatePerMillion"`
}

func tracingKeys() []Key {
	return []Key{
		{Path: "tracing.endpoint", Kind: kindString, doc: "`host:port` of an OpenTelemetry collector that receives a trace of each pod start: OTLP over gRPC without TLS, usually `localhost:4317`. Empty: tracing is disabled. See `monopod docs endpoints`."},
		{Path: "tracing.samplingRatePerMillion", Kind: kindInt, def: int64(0), doc: "Traces per million pod starts; 1000000: all. The default is none, as for a kubelet."},
	}
}

func (c *configCheck) tracing(cfg *Tracing) {
	const million = 1_000_000
	c.between("tracing.samplingRatePerMillion", cfg.SamplingRatePerMillion, 0, million)
	if cfg.Endpoint == "" {
		return
	}
	if host, port, err := net.SplitHostPort(cfg.Endpoint); err != nil || host == "" || port == "" {
		c.add("tracing.endpoint", fmt.Sprintf("%q is not host:port", cfg.Endpoint), "write localhost:4317")
	}
}
