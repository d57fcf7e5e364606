// Command lint says what BuildKit finds in Dockerfiles, as `docker build --check` does, with no engine and no network.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/opencontainers/go-digest"
)

// base stands for every base image: what a registry would say of one is not looked at by any check.
type base struct{}

func (base) ResolveImageConfig(_ context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	config := []byte(`{"architecture":"amd64","os":"linux","config":{"Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}}`)
	return ref, digest.FromBytes(config), config, nil
}

func main() {
	found := 0
	for _, path := range os.Args[1:] {
		text, err := os.ReadFile(path)
		if err != nil {
			fail(err)
		}
		source := llb.NewSourceMap(nil, path, "Dockerfile", text)
		source.Definition = &llb.Definition{}
		results, err := dockerfile2llb.DockerfileLint(context.Background(), text, dockerfile2llb.ConvertOpt{SourceMap: source, MetaResolver: base{}})
		if err != nil {
			fail(err)
		}
		if results.Error != nil {
			fail(fmt.Errorf("%s: %s", path, results.Error.Message))
		}
		for _, warning := range results.Warnings {
			found++
			line, _ := json.Marshal(warning)
			fmt.Printf("%s: %s\n", path, line)
		}
	}
	if found > 0 {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}
