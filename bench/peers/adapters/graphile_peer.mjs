// Graphile Worker: one Node process, 100 jobs at once from a local queue, polled every 100 ms.
import { Logger, makeWorkerUtils, run } from 'graphile-worker';
import pg from 'pg';
import { enqueuer, record, url } from './side.mjs';

const quiet = new Logger(() => () => {});
const pgPool = new pg.Pool({ connectionString: url, max: 20 });
const utils = await makeWorkerUtils({ pgPool, logger: quiet });
await utils.migrate();

if (process.argv[2] === 'worker') {
  await run({
    pgPool,
    logger: quiet,
    preset: { worker: { concurrentJobs: 100, pollInterval: 100, localQueue: { size: 200 } } },
    taskList: { handle: async (payload) => record(payload.body) },
  });
} else {
  const one = (body, due) => utils.addJob('handle', { body }, { runAt: new Date(due) });
  const many = async (items) => {
    for (let start = 0; start < items.length; start += 1000) {
      const some = items.slice(start, start + 1000);
      await utils.addJobs(
        some.map(([body, due]) => ({ identifier: 'handle', payload: { body }, runAt: new Date(due) })),
      );
    }
  };
  await enqueuer(one, many);
}
