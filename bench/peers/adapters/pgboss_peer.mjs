// pg-boss: one Node process, 100 jobs a fetch, looked for every half second (its shortest).
import { PgBoss } from 'pg-boss';
import { enqueuer, lease, record, url } from './side.mjs';

const NAME = 'peers';
const boss = new PgBoss({ connectionString: url, max: 20 });
boss.on('error', () => {});
await boss.start();
await boss.createQueue(NAME, lease ? { expireInSeconds: lease, retryLimit: 100 } : {});

if (process.argv[2] === 'worker') {
  const options = { batchSize: 100, pollingIntervalSeconds: 0.5 };
  await boss.work(NAME, options, async (jobs) => jobs.forEach((job) => record(job.data.body)));
} else {
  const one = (body, due) => boss.send(NAME, { body }, { startAfter: new Date(due) });
  const many = async (items) => {
    for (let start = 0; start < items.length; start += 1000) {
      const some = items.slice(start, start + 1000);
      await boss.insert(NAME, some.map(([body, due]) => ({ data: { body }, startAfter: new Date(due) })));
    }
  };
  await enqueuer(one, many);
}
