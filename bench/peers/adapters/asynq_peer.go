// asynq: one Go process, 100 tasks at once, delayed tasks looked for every 100 ms, nothing kept.
package main

import (
	"context"
	"os"
	"time"

	"github.com/hibiken/asynq"
)

func main() {
	redis := got(asynq.ParseRedisURI(url))
	if os.Args[1] == "worker" {
		openOut()
		server := asynq.NewServer(redis, asynq.Config{
			Concurrency:              100,
			DelayedTaskCheckInterval: 100 * time.Millisecond,
			LogLevel:                 asynq.ErrorLevel,
		})
		must(server.Run(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
			record(string(task.Payload()))
			return nil
		})))
	}
	client := asynq.NewClient(redis)
	enqueuer(func(it item) {
		got(client.Enqueue(asynq.NewTask("handle", []byte(it.body)), asynq.ProcessAt(it.due)))
	}, nil)
}
